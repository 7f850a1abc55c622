"""What the verbs of the command line do, a file a verb.

`run(argv)` does it, and returns the exit code where that is not 0. The first line of a file is what `longwave --help`
says about its verb. A verb that is a word of Python (import) has a file with an underscore behind its name.
"""
