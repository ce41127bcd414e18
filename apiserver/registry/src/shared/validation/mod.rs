//! Checks that several kinds share, each in upstream's words and order (`pkg/apis/*/validation`).
//!
//! A kind's own rules are in `<group>/<kind>/validation.rs` and are built from these. Paths are rendered only when
//! something is wrong: [`Path`] is a chain of borrowed steps, [`Errors`] the list that problems go into.
//! Nothing here changes an object or looks anything up.

mod addresses;
mod conditions;
mod errors;
mod load_balancer;
mod names;
mod resource_names;
mod selectors;
mod signers;
mod values;
mod webhooks;

pub use addresses::{
    cidr, interface_address, ip_problems, is_pair, is_strict_part, legacy_cidr, legacy_ip, lenient_ip,
    lenient_range,
};
pub use conditions::conditions;
pub use errors::{Errors, each_once};
pub use load_balancer::load_balancer;
pub use machinery_meta::walked_path::WalkedPath as Path;
pub use names::{csi_driver_name, dns_label, dns_subdomain, domain_prefixed_path, qualified};
pub use resource_names::{
    container_resource_name, is_native_resource, is_quota_resource, may_overcommit, quota_resource_name,
    resource_amount, resource_name,
};
pub use selectors::{
    annotations, label_selector, labels, parse_label_selector, parse_workload_selector, template_labels_match,
};
pub use signers::{signer_name, trust_bundle_name_problems, trust_bundle_signer};
pub use values::{
    immutable, immutable_text, int_or_percent, is_empty_object, is_zero_amount, non_negative,
    non_negative_int, not_over_100_percent, one_of, present, quantity, range,
};
pub use webhooks::{webhook_service_problems, webhook_url_problems};
