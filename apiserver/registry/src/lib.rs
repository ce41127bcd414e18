//! Turns verbs on a kind into reads and writes of storage.
