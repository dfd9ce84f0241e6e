"""What each page shows, as values: functions of the published fleet and of what the store has read.

Nothing here knows HTML, HTTP or the time; times are milliseconds, and pages say them in zones.
"""
