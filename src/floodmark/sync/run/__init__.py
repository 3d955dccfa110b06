"""The main path of a run. Read ``open_window``, ``load``, ``check``, ``advance``, in that order."""
