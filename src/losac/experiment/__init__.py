"""An experiment as options and as a file, and the data, task and algorithms made from it.

The fields are written once, in :mod:`losac.experiment.options`. Options of the command line, sections of a file, its
schema and its checks are made from them. Nothing heavy is imported before something is built.
"""
