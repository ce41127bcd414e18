//! The object tree, the table's form and the engines that run on it.
