//! The loops that move status toward spec, one folder each.
