//! Pod network of one node.
