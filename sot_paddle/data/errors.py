"""The one error of the data package."""


class DataError(ValueError):
    """A data file, folder, label or prediction that cannot be used; one line, says what to do."""
