//! ServiceCIDR: a range that cluster IPs are taken from.
pub mod validation;
