//! The ordered log of every change: the storage trait, its backends and watch cursors.
