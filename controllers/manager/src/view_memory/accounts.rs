//! Views of roles, accounts, Secrets, certificates and trust bundles.

use super::{CONDITION, LABEL, MOST, OF_COMPONENTS, check};
use crate::bootstrap_tokens::view::TokenView as BootstrapTokenView;
use crate::certificates::view::RequestView;
use crate::cluster_role_aggregation::RoleView;
use crate::cluster_trust_bundles::BundleView;
use crate::root_ca::Published;
use crate::service_account_tokens::views::{AccountView, TokenView};
use crate::storage_protection::views::StorageView;
use crate::validating_admission_policy_status::PolicyView;

#[test]
fn views_of_roles_secrets_and_accounts_take_what_is_charged() {
    check::<PolicyView>(
        MOST,
        &[(
            object!(r#""spec":{"validations":[@]}"#),
            r##"{"expression":"#"}"##,
        )],
    );
    check::<RoleView>(
        OF_COMPONENTS,
        &[
            (
                object!(r#""rules":[@]"#),
                r##"{"verbs":["#"],"apiGroups":[""],"resources":["r"]}"##,
            ),
            (object!(r#""rules":[{"verbs":[@]}]"#), r##""#""##),
            (
                object!(r#""aggregationRule":{"clusterRoleSelectors":[@]}"#),
                r##"{"matchLabels":{"#":""}}"##,
            ),
        ],
    );
    check::<Published>(MOST, &[(object!(r#""data":{@}"#), LABEL)]);
    check::<TokenView>(
        MOST,
        &[
            (r#"{"metadata":{"name":"a","annotations":{@}}}"#, LABEL),
            (object!(r#""data":{@}"#), LABEL),
        ],
    );
    check::<AccountView>(MOST, &[(object!(r#""secrets":[@]"#), r##"{"name":"#"}"##)]);
    check::<StorageView>(
        MOST,
        &[(object!(r#""spec":{"volumeAttributesClassName":"@"}"#), "a")],
    );
}

#[test]
fn view_of_a_signing_request_takes_what_is_charged() {
    check::<RequestView>(
        MOST,
        &[
            (object!(r#""spec":{"signerName":"@"}"#), "a"),
            (object!(r#""status":{"conditions":[@]}"#), CONDITION),
        ],
    );
}

#[test]
fn view_of_a_trust_bundle_takes_what_is_charged() {
    check::<BundleView>(MOST, &[(object!(r#""spec":{"trustBundle":"@"}"#), "a")]);
}

#[test]
fn view_of_a_bootstrap_token_takes_what_is_charged() {
    check::<BootstrapTokenView>(MOST, &[(object!(r#""data":{@}"#), LABEL)]);
}
