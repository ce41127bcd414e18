//! Kernel facilities behind narrow traits.
