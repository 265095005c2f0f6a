"""What an operator asks of a project: status, doctor, explanation of views, verification.

All of them read, beside a maintainer that runs; none needs the warehouse's lock.
"""
