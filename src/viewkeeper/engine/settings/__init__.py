"""The project file, read and checked before anything is opened.

Each module has the settings of one subject and says what is wrong with them, with the place.
"""
