"""Which functions a view may call, and which a query may.

A view is maintained by applying its expressions to changed rows only, now for one row and later for
another. That is right only for functions whose value depends on nothing but their arguments. A
function is therefore allowed by name, as the user wrote it; whatever is not listed is refused. The
lists are those of Spark 4.3's registry, and a test compares them with it.

Left out on purpose: variants and sketches (no source delivers them), what makes maps (they cannot
be compared), and functions of the new TIME type. JSON and structs may be taken apart inside of an
expression; no column of a view can be one.

A query over views may call more (`IN_QUERY`), but again only what is listed: everything that
computes a value from its arguments. `REFUSED` has what reaches beyond them, with the reason. Every
function of Spark is in one of the lists, so that a new one of a new Spark must be looked at.
"""

from __future__ import annotations

from viewkeeper.errors import suggest_nearest


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


DETERMINISTIC = _split_names(
    """
    abs acos acosh add_months aes_decrypt array array_append array_compact array_contains
    array_distinct array_except array_insert array_intersect array_join array_max array_min
    array_position array_prepend array_remove array_repeat array_size array_union
    arrays_overlap arrays_zip ascii asin asinh atan atan2 atanh base64 bigint bin binary
    bit_count bit_get bit_length bitmap_bit_position bitmap_bucket_number bitmap_count
    boolean bround btrim cardinality cast cbrt ceil ceiling char char_length
    character_length chr coalesce collation concat concat_ws contains conv convert_timezone
    cos cosh cot crc32 csc date date_add date_diff date_format date_from_unix_date date_part
    date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear
    decimal decode degrees div double e element_at elt encode endswith equal_null exp expm1
    extract factorial find_in_set flatten float floor format_number format_string
    from_base32 from_json from_unixtime from_utc_timestamp get get_json_object getbit
    greatest hash hex hmac hour hypot if ifnull initcap instr int is_valid_utf8 isnan
    isnotnull isnull jaro_winkler_similarity json_array_length json_object_keys last_day
    lcase least left len length levenshtein ln locate log log10 log1p log2 lower lpad ltrim
    luhn_check make_date make_dt_interval make_interval make_timestamp make_timestamp_ltz
    make_timestamp_ntz make_valid_utf8 make_ym_interval map_keys map_values mask md5 minute
    mod month monthname months_between named_struct nanvl negative next_day nullif
    nullifzero nvl nvl2 octet_length overlay parse_url pi pmod position positive pow power
    printf quarter quote radians regexp_count regexp_extract regexp_extract_all regexp_instr
    regexp_like regexp_replace regexp_substr repeat replace reverse right rint round rpad
    rtrim sec second sequence sha sha1 sha2 shiftleft shiftright shiftrightunsigned sign
    signum sin sinh size slice smallint sort_array soundex space split split_part sqrt
    startswith str_to_map string struct substr substring substring_index tan tanh timestamp
    timestamp_micros timestamp_millis timestamp_seconds tinyint to_base32 to_binary to_char
    to_date to_json to_number to_timestamp to_timestamp_ltz to_timestamp_ntz
    to_unix_timestamp to_utc_timestamp to_varchar translate trim trunc try_add
    try_aes_decrypt try_divide try_element_at try_make_interval try_make_timestamp
    try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_url
    try_subtract try_to_binary try_to_date try_to_number try_to_timestamp try_url_decode
    try_validate_utf8 ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds
    unix_timestamp upper url_decode url_encode validate_utf8 weekday weekofyear width_bucket
    xxhash64 year zeroifnull
    """
)

AGGREGATES = _split_names(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k
    approx_top_k_accumulate approx_top_k_combine array_agg avg bit_and bit_or bit_xor
    bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list
    collect_set collect_union corr count count_if count_min_sketch covar_pop covar_samp
    every first first_value grouping grouping_id histogram_numeric hll_sketch_agg
    hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last
    last_value listagg max max_by mean measure median min min_by mode percentile
    percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev
    stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg
    theta_union_agg try_avg try_sum tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance
    """
)

WINDOW = _split_names(
    """
    counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number
    """
)

GENERATORS = _split_names(
    """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack
    """
)

NON_DETERMINISTIC = _split_names(
    """
    aes_encrypt curdate current_catalog current_database current_date current_path
    current_schema current_time current_timestamp current_timezone current_user
    input_file_block_length input_file_block_start input_file_name java_method localtime
    localtimestamp monotonically_increasing_id now rand randn random randstr reflect
    session_user shuffle spark_partition_id try_reflect uniform user uuid version
    """
)

HIGHER_ORDER = _split_names(
    """
    aggregate array_sort exists filter forall map_filter map_zip_with reduce transform
    transform_keys transform_values zip_with
    """
)

QUERY_ONLY = _split_names(
    """
    approx_top_k_estimate assert_true collate from_csv hll_sketch_estimate hll_union
    is_valid_variant is_variant_null kll_sketch_get_n_bigint kll_sketch_get_n_double
    kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double
    kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double
    kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double
    kll_sketch_to_string_float make_time map map_concat map_contains_key map_entries
    map_from_arrays map_from_entries parse_json raise_error schema_of_csv schema_of_json
    schema_of_variant schema_of_variant_agg sentences session_window st_asbinary
    st_geogfromwkb st_geomfromwkb st_setsrid st_srid theta_difference theta_intersection
    theta_sketch_estimate theta_union time time_bucket time_diff time_from_micros
    time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds
    time_trunc timestamp_nanos to_csv to_time to_variant_object try_parse_json try_to_time
    try_variant_array_append try_variant_get try_variant_insert try_variant_set
    tuple_difference_double tuple_difference_integer tuple_difference_theta_double
    tuple_difference_theta_integer tuple_intersection_double tuple_intersection_integer
    tuple_intersection_theta_double tuple_intersection_theta_integer
    tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
    tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
    tuple_union_double tuple_union_integer tuple_union_theta_double
    tuple_union_theta_integer typeof unix_nanos variant_array_append variant_delete
    variant_explode variant_explode_outer variant_get variant_insert variant_set
    variant_strip_nulls vector_avg vector_cosine_similarity vector_inner_product
    vector_l2_distance vector_norm vector_normalize vector_sum window window_time
    """
)

# Spark's registry has operators too, by the names that its parser gives them.
OPERATORS = _split_names(
    """
    ! != % & * + - / < << <= <=> <> = == > >= >> >>> ^ | || ~
    and between case ilike in like not or regexp rlike when
    """
)

REFUSED: dict[str, str] = {
    **dict.fromkeys(("java_method", "reflect", "try_reflect"), "it runs Java code"),
    **dict.fromkeys(
        ("input_file_block_length", "input_file_block_start", "input_file_name"),
        "it shows files of the warehouse",
    ),
    **dict.fromkeys(
        ("from_protobuf", "to_protobuf", "from_avro", "to_avro", "schema_of_avro"),
        "it reads a schema from elsewhere",
    ),
    **dict.fromkeys(
        _split_names(
            """
            from_xml schema_of_xml to_xml xpath xpath_boolean xpath_double xpath_float xpath_int
            xpath_long xpath_number xpath_short xpath_string
            """
        ),
        "an XML document can name files",
    ),
    **dict.fromkeys(
        ("collations", "python_worker_logs", "range", "sql_keywords"), "it is a table, and no view"
    ),
}

# These have a syntax of their own, so that Spark's registry does not list them.
SYNTAX = frozenset({"cast", "try_cast", "timestampadd", "timestampdiff"})

IN_QUERY = (
    DETERMINISTIC
    | AGGREGATES
    | WINDOW
    | GENERATORS
    | NON_DETERMINISTIC
    | HIGHER_ORDER
    | QUERY_ONLY
    | OPERATORS
    | SYNTAX
) - REFUSED.keys()

TABLES = frozenset({"range"})
"""Functions that a view may read as a table."""

# A word before a bracket that calls nothing: operators and clauses, and types with parameters.
KEYWORDS = _split_names(
    """
    and as between by case cross else from full ilike in inner is join like not on or regexp rlike
    select then using when where xor dec numeric varchar
    """
)

# The same in a query, which has more clauses.
QUERY_KEYWORDS = KEYWORDS | _split_names(
    """
    all any anti array distinct except exists filter group having inner intersect lateral left limit
    minus natural offset outer over partition pivot qualify right rollup semi sets some
    tablesample union unpivot values with cube for
    """
)

# With no argument this means the present moment; with one it is a plain conversion.
NEEDS_ARGUMENT = frozenset({"unix_timestamp"})

# What Spark reads as a function even without brackets, unless it is a column.
WITHOUT_BRACKETS = _split_names(
    """
    current_catalog current_date current_schema current_time current_timestamp current_user
    localtime localtimestamp session_user
    """
)


def refusal_of_call(name: str, empty: bool) -> tuple[str, str | None] | None:
    """Why a call cannot be maintained, as construct and hint; None if it can."""
    if name in AGGREGATES:
        return f"the aggregate {name}()", None
    if name in WINDOW:
        return f"the window function {name}()", "apply it when reading the view"
    if name in GENERATORS:
        return f"the generator {name}()", "a view row must come from one row of each relation"
    if name in HIGHER_ORDER:
        return f"the higher-order function {name}()", "apply it when reading the view"
    if name in NON_DETERMINISTIC or (empty and name in NEEDS_ARGUMENT):
        return f"the non-deterministic function {name}()", "compute it when reading the view"
    if name in DETERMINISTIC or name in SYNTAX:
        return None
    return f"the function {name}()", missing_function_hint(name)


def missing_function_hint(name: str) -> str:
    """What is said of a function that may not be called, and is in no list of those refused.

    >>> missing_function_hint("uper")
    'Spark has no function of this name; did you mean "upper"?'
    """
    if name in IN_QUERY or name in REFUSED:
        return "only Spark's own deterministic scalar functions are allowed"
    near = suggest_nearest(name, sorted(IN_QUERY - OPERATORS))
    return f"Spark has no function of this name{near}"
