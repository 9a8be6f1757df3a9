"""Subjects: the implementations that are judged, how they are found and loaded, and how they are called."""
