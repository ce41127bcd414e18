//! Views take about what their objects are charged, whatever a tenant fills these with: the worst object of each kind that the
//! API takes, as its view. It is one long table, a row for each view; `every_view_is_measured` of `machinery-client` looks for them.

use crate::bootstrap_tokens::view::TokenView as BootstrapTokenView;
use crate::certificates::view::RequestView;
use crate::cluster_role_aggregation::RoleView;
use crate::cluster_trust_bundles::BundleView;
use crate::device_taint_eviction::view::{AllocationView, DevicesView, RuleView};
use crate::endpoint_slice::view::SliceView;
use crate::endpoint_slice_mirroring::MirroredView;
use crate::endpoints::EndpointsView;
use crate::history::RevisionView;
use crate::horizontal_pod_autoscaler::AutoscalerView;
use crate::node_lifecycle::LeaseView;
use crate::resource_claim::view::{DeviceClaimView, TemplateView};
use crate::resource_quota::views::{DeviceClassView, MeasuredView, OfPod, OfResourceClaim, QuotaView};
use crate::root_ca::Published;
use crate::service_account_tokens::views::{AccountView, TokenView};
use crate::service_cidr::view::{AddressView, CidrView};
use crate::storage_protection::views::StorageView;
use crate::storage_version_migration::view::MigrationView;
use crate::validating_admission_policy_status::PolicyView;
use crate::views::{
    CronJobView, DaemonSetView, DeploymentView, DisruptionBudgetView, JobView, NamespaceView, NodeView,
    PodView, ReplicaSetView, ReplicationControllerView, ServiceView, StatefulSetView,
};
use crate::volume_binder::views::{ClaimView, ClassView, VolumeView};
use machinery_client::Projection;
use machinery_client::object::view_cost;
use machinery_fuzz::{filled, resident};

/// Most bytes of a view per byte that its object is charged. Twice is the text kept beside the object's bytes.
const MOST: f64 = 2.6;
/// The same where controllers or nodes write the list, or the cluster's administrators: as values.
const OF_COMPONENTS: f64 = 28.0;
/// The same for requirements of selectors, which are values.
const OF_REQUIREMENTS: f64 = 7.5;

/// Asserts that the view of each of these objects, filled with items, takes at most this many times what the store charges.
#[track_caller]
fn check<P: Projection>(most: f64, objects: &[(&str, &str)]) {
    let name = std::any::type_name::<P>();
    let mut above = Vec::new();
    for (object, item) in objects {
        let cost = view_cost::<P>(&filled(object, item), resident).unwrap();
        #[allow(clippy::cast_precision_loss, reason = "sizes of test objects")]
        let times = cost.taken as f64 / cost.charged as f64;
        if times > most {
            above.push(format!("{times:.1} times: {object} of {item}"));
        }
    }
    assert!(above.is_empty(), "{name}: {above:#?}");
}

const LABEL: &str = r##""#":"""##;
const CONDITION: &str = r##"{"type":"#","status":"True"}"##;

/// An object with this beside its metadata.
macro_rules! object {
    ($rest:literal) => {
        concat!(
            r#"{"metadata":{"name":"a","namespace":"n","uid":"u"},"#,
            $rest,
            "}"
        )
    };
}

#[test]
fn view_of_metadata_takes_what_is_charged() {
    check::<()>(
        MOST,
        &[
            (r#"{"metadata":{"name":"a","labels":{@}}}"#, LABEL),
            (r#"{"metadata":{"name":"a","annotations":{@}}}"#, LABEL),
            (r#"{"metadata":{"name":"a","finalizers":[@]}}"#, r##""a/#""##),
            (
                r#"{"metadata":{"name":"a","ownerReferences":[@]}}"#,
                r##"{"apiVersion":"v1","kind":"K","name":"n","uid":"#"}"##,
            ),
        ],
    );
}

#[test]
fn view_of_a_pod_takes_what_is_charged() {
    check::<PodView>(
        MOST,
        &[
            (r#"{"metadata":{"name":"a","annotations":{@}}}"#, LABEL),
            (
                object!(r#""spec":{"tolerations":[@]}"#),
                r##"{"key":"#","operator":"Exists"}"##,
            ),
            (object!(r#""spec":{"schedulingGates":[@]}"#), r##"{"name":"#"}"##),
            (
                object!(r#""spec":{"containers":[@]}"#),
                r##"{"name":"#","image":"i"}"##,
            ),
            (
                object!(r#""spec":{"containers":[@]}"#),
                r##"{"name":"#","image":"i","resources":{"requests":{"cpu":"1","memory":"1"}}}"##,
            ),
            (
                object!(r#""spec":{"containers":[{"name":"c","ports":[@]}]}"#),
                r##"{"name":"#","containerPort":1,"protocol":"TCP"}"##,
            ),
            (
                object!(r#""spec":{"volumes":[@]}"#),
                r##"{"name":"#","persistentVolumeClaim":{"claimName":"c"}}"##,
            ),
            (
                object!(r#""spec":{"volumes":[@]}"#),
                r##"{"name":"#","ephemeral":{}}"##,
            ),
            (
                object!(r#""spec":{"resourceClaims":[@]}"#),
                r##"{"name":"#","resourceClaimTemplateName":"t"}"##,
            ),
            (
                object!(r#""spec":{"resourceClaims":[@]}"#),
                r##"{"name":"#","resourceClaimName":"c"}"##,
            ),
            (object!(r#""status":{"podIPs":[@]}"#), r##"{"ip":"#"}"##),
            (
                object!(r#""status":{"phase":"Failed","conditions":[@]}"#),
                CONDITION,
            ),
            (
                object!(r#""status":{"phase":"Failed","containerStatuses":[@]}"#),
                r##"{"name":"#","state":{"terminated":{"exitCode":1}}}"##,
            ),
        ],
    );
}

#[test]
fn view_of_an_autoscaler_takes_what_is_charged() {
    check::<AutoscalerView>(
        MOST,
        &[(
            object!(r#""spec":{"metrics":[@]}"#),
            r##"{"type":"Resource","resource":{"name":"#"}}"##,
        )],
    );
}

#[test]
fn view_of_a_deployment_takes_what_is_charged() {
    check::<DeploymentView>(
        MOST,
        &[
            (
                r#"{"metadata":{"name":"a","annotations":{@}},"spec":{"selector":{},"template":{"spec":{}}}}"#,
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{"matchLabels":{@}},"template":{"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"metadata":{"labels":{@}},"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"metadata":{"annotations":{@}},"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"metadata":{"finalizers":[@]},"spec":{}}}"#),
                r##""a/#""##,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"spec":{"tolerations":[@]}}}"#),
                r##"{"key":"#","operator":"Exists"}"##,
            ),
        ],
    );
    check::<DeploymentView>(
        OF_REQUIREMENTS,
        &[
            (
                object!(r#""spec":{"selector":{"matchExpressions":[@]},"template":{"spec":{}}}"#),
                r##"{"key":"#","operator":"Exists"}"##,
            ),
            (
                object!(
                    r#""spec":{"selector":{"matchExpressions":[{"key":"k","operator":"In","values":[@]}]},"template":{"spec":{}}}"#
                ),
                r##""#""##,
            ),
        ],
    );
    check::<DeploymentView>(
        OF_COMPONENTS,
        &[(
            object!(r#""spec":{"selector":{},"template":{"spec":{}}},"status":{"conditions":[@]}"#),
            CONDITION,
        )],
    );
}

#[test]
fn view_of_a_replica_set_takes_what_is_charged() {
    check::<ReplicaSetView>(
        MOST,
        &[
            (
                r#"{"metadata":{"name":"a","annotations":{@}},"spec":{"selector":{},"template":{"spec":{}}}}"#,
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{"matchLabels":{@}},"template":{"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"metadata":{"labels":{@}},"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"spec":{"tolerations":[@]}}}"#),
                r##"{"key":"#","operator":"Exists"}"##,
            ),
        ],
    );
    check::<ReplicaSetView>(
        OF_REQUIREMENTS,
        &[(
            object!(r#""spec":{"selector":{"matchExpressions":[@]},"template":{"spec":{}}}"#),
            r##"{"key":"#","operator":"Exists"}"##,
        )],
    );
    check::<ReplicaSetView>(
        OF_COMPONENTS,
        &[(
            object!(r#""spec":{"selector":{},"template":{"spec":{}}},"status":{"conditions":[@]}"#),
            CONDITION,
        )],
    );
}

#[test]
fn view_of_a_daemon_set_takes_what_is_charged() {
    check::<DaemonSetView>(
        MOST,
        &[
            (
                r#"{"metadata":{"name":"a","annotations":{@}},"spec":{"selector":{},"template":{"spec":{}}}}"#,
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{"matchLabels":{@}},"template":{"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"metadata":{"labels":{@}},"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"spec":{"tolerations":[@]}}}"#),
                r##"{"key":"#","operator":"Exists"}"##,
            ),
        ],
    );
    check::<DaemonSetView>(
        OF_REQUIREMENTS,
        &[(
            object!(r#""spec":{"selector":{"matchExpressions":[@]},"template":{"spec":{}}}"#),
            r##"{"key":"#","operator":"Exists"}"##,
        )],
    );
    check::<DaemonSetView>(
        OF_COMPONENTS,
        &[(
            object!(r#""spec":{"selector":{},"template":{"spec":{}}},"status":{"conditions":[@]}"#),
            CONDITION,
        )],
    );
}

#[test]
fn view_of_a_replication_controller_takes_what_is_charged() {
    check::<ReplicationControllerView>(
        MOST,
        &[
            (
                object!(r#""spec":{"selector":{@},"template":{"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"metadata":{"labels":{@}},"spec":{}}}"#),
                LABEL,
            ),
        ],
    );
}

#[test]
fn view_of_a_disruption_budget_takes_what_is_charged() {
    check::<DisruptionBudgetView>(
        MOST,
        &[
            (object!(r#""spec":{"selector":{"matchLabels":{@}}}"#), LABEL),
            (
                object!(r#""status":{"disruptedPods":{@}}"#),
                r##""#":"2026-01-01T00:00:00Z""##,
            ),
        ],
    );
    check::<DisruptionBudgetView>(
        OF_REQUIREMENTS,
        &[(
            object!(r#""spec":{"selector":{"matchExpressions":[@]}}"#),
            r##"{"key":"#","operator":"Exists"}"##,
        )],
    );
}

#[test]
fn view_of_a_stateful_set_takes_what_is_charged() {
    check::<StatefulSetView>(
        MOST,
        &[
            (
                object!(r#""spec":{"selector":{"matchLabels":{@}},"template":{"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"spec":{}},"volumeClaimTemplates":[@]}"#),
                r##"{"metadata":{"name":"#"}}"##,
            ),
        ],
    );
    check::<StatefulSetView>(
        OF_REQUIREMENTS,
        &[(
            object!(r#""spec":{"selector":{"matchExpressions":[@]},"template":{"spec":{}}}"#),
            r##"{"key":"#","operator":"Exists"}"##,
        )],
    );
    check::<StatefulSetView>(
        OF_COMPONENTS,
        &[(
            object!(r#""spec":{"selector":{},"template":{"spec":{}}},"status":{"conditions":[@]}"#),
            CONDITION,
        )],
    );
}

#[test]
fn view_of_a_job_takes_what_is_charged() {
    check::<JobView>(
        MOST,
        &[
            (
                object!(r#""spec":{"template":{"metadata":{"labels":{@}},"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{"matchLabels":{@}},"template":{"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"template":{"spec":{"tolerations":[@]}}}"#),
                r##"{"key":"#","operator":"Exists"}"##,
            ),
            (
                object!(
                    r#""spec":{"podFailurePolicy":{"rules":[{"action":"Ignore","onPodConditions":[@]}]},"template":{"spec":{}}}"#
                ),
                CONDITION,
            ),
            (
                object!(
                    r#""spec":{"podFailurePolicy":{"rules":[{"action":"Ignore","onExitCodes":{"operator":"In","values":[@]}}]},"template":{"spec":{}}}"#
                ),
                "1",
            ),
            (
                object!(r#""spec":{"successPolicy":{"rules":[@]},"template":{"spec":{}}}"#),
                r##"{"succeededCount":1}"##,
            ),
        ],
    );
    check::<JobView>(
        OF_REQUIREMENTS,
        &[(
            object!(r#""spec":{"selector":{"matchExpressions":[@]},"template":{"spec":{}}}"#),
            r##"{"key":"#","operator":"Exists"}"##,
        )],
    );
    check::<JobView>(
        OF_COMPONENTS,
        &[
            (
                object!(r#""spec":{"template":{"spec":{}}},"status":{"conditions":[@]}"#),
                CONDITION,
            ),
            (
                object!(
                    r#""spec":{"template":{"spec":{}}},"status":{"uncountedTerminatedPods":{"succeeded":[@]}}"#
                ),
                r##""#""##,
            ),
        ],
    );
}

#[test]
fn view_of_a_cron_job_takes_what_is_charged() {
    check::<CronJobView>(
        MOST,
        &[(
            object!(
                r#""spec":{"schedule":"","jobTemplate":{"spec":{"template":{"metadata":{"labels":{@}}}}}}"#
            ),
            LABEL,
        )],
    );
    check::<CronJobView>(
        OF_COMPONENTS,
        &[(
            object!(r#""spec":{"schedule":"","jobTemplate":{}},"status":{"active":[@]}"#),
            r##"{"uid":"#"}"##,
        )],
    );
}

#[test]
fn views_of_services_and_endpoints_take_what_is_charged() {
    check::<ServiceView>(
        MOST,
        &[
            (object!(r#""spec":{"selector":{@}}"#), LABEL),
            (
                object!(r#""spec":{"ports":[@]}"#),
                r##"{"name":"#","protocol":"TCP","port":1,"targetPort":1}"##,
            ),
        ],
    );
    check::<SliceView>(
        OF_COMPONENTS,
        &[
            (
                object!(r#""addressType":"IPv4","endpoints":[@]"#),
                r##"{"addresses":["1.1.1.1"]}"##,
            ),
            (
                object!(r#""addressType":"FQDN","endpoints":[@]"#),
                r##"{"addresses":["a"],"hostname":"h","nodeName":"n","zone":"z","targetRef":{"kind":"Pod","name":"n"}}"##,
            ),
        ],
    );
    // These a tenant's Service dictates, once for each of its pods.
    check::<SliceView>(
        MOST,
        &[(
            object!(r#""addressType":"IPv4","endpoints":[],"ports":[@]"#),
            r##"{"name":"#","port":1000,"protocol":"TCP"}"##,
        )],
    );
    check::<MirroredView>(
        MOST,
        &[(
            object!(r#""addressType":"IPv4","endpoints":[@]"#),
            r##"{"addresses":["1.1.1.1"]}"##,
        )],
    );
    check::<EndpointsView>(
        OF_COMPONENTS,
        &[
            (r#"{"metadata":{"name":"a","annotations":{@}}}"#, LABEL),
            (
                object!(r#""subsets":[@]"#),
                r##"{"addresses":[{"ip":"1.1.1.1"}]}"##,
            ),
            (
                object!(r#""subsets":[{"addresses":[@]}]"#),
                r##"{"ip":"1.1.1.1"}"##,
            ),
            (
                object!(r#""subsets":[{"ports":[@]}]"#),
                r##"{"name":"#","protocol":"TCP","port":1,"targetPort":1}"##,
            ),
        ],
    );
}

#[test]
fn views_of_nodes_namespaces_and_ranges_take_what_is_charged() {
    check::<NodeView>(
        OF_COMPONENTS,
        &[
            (
                object!(r#""spec":{"taints":[@]}"#),
                r##"{"key":"#","effect":"NoSchedule"}"##,
            ),
            (object!(r#""spec":{"podCIDRs":[@]}"#), r##""#""##),
            (object!(r#""status":{"conditions":[@]}"#), CONDITION),
        ],
    );
    check::<LeaseView>(MOST, &[(object!(r#""spec":{"renewTime":"@"}"#), "a")]);
    check::<NamespaceView>(
        OF_COMPONENTS,
        &[
            (object!(r#""spec":{"finalizers":[@]}"#), r##""a/#""##),
            (object!(r#""status":{"conditions":[@]}"#), CONDITION),
        ],
    );
    check::<CidrView>(
        OF_COMPONENTS,
        &[
            (object!(r#""spec":{"cidrs":[@]}"#), r##""1.1.1.0/24""##),
            (object!(r#""status":{"conditions":[@]}"#), CONDITION),
        ],
    );
    check::<AddressView>(MOST, &[(r#"{"metadata":{"name":"a","labels":{@}}}"#, LABEL)]);
}

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

#[test]
fn view_of_a_revision_takes_what_is_charged() {
    check::<RevisionView>(
        MOST,
        &[
            (r#"{"metadata":{"name":"a","labels":{@}},"revision":1}"#, LABEL),
            (object!(r#""data":{@},"revision":1"#), LABEL),
            (object!(r#""data":[@],"revision":1"#), "1"),
        ],
    );
}

#[test]
fn views_of_the_volume_binder_take_what_is_charged() {
    const MODE: &str = r#""ReadWriteOnce""#;
    check::<ClaimView>(
        MOST,
        &[
            (object!(r#""spec":{"storageClassName":"@"}"#), "a"),
            (object!(r#""spec":{"resources":{"requests":{@}}}"#), LABEL),
            (
                r#"{"metadata":{"name":"a","annotations":{"volume.kubernetes.io/selected-node":"@"}}}"#,
                "a",
            ),
        ],
    );
    check::<ClaimView>(OF_COMPONENTS, &[(object!(r#""spec":{"accessModes":[@]}"#), MODE)]);
    check::<ClaimView>(
        OF_REQUIREMENTS,
        &[(
            object!(r#""spec":{"selector":{"matchExpressions":[@]}}"#),
            r##"{"key":"#","operator":"Exists"}"##,
        )],
    );
    check::<VolumeView>(
        MOST,
        &[
            (object!(r#""spec":{"storageClassName":"@"}"#), "a"),
            (object!(r#""spec":{"capacity":{@}}"#), LABEL),
        ],
    );
    check::<VolumeView>(OF_COMPONENTS, &[(object!(r#""spec":{"accessModes":[@]}"#), MODE)]);
    check::<ClassView>(MOST, &[(object!(r#""parameters":{@}"#), LABEL)]);
}

#[test]
fn views_of_quotas_take_what_is_charged() {
    check::<QuotaView>(
        OF_COMPONENTS,
        &[
            (object!(r#""spec":{"hard":{@}}"#), r##""count/#":"1""##),
            (object!(r#""spec":{"scopes":[@]}"#), r#""BestEffort""#),
        ],
    );
    check::<MeasuredView<OfPod>>(
        OF_REQUIREMENTS,
        &[(
            object!(r#""spec":{"containers":[{"name":"a","resources":{"requests":{@}}}]}"#),
            r##""a/#":"1""##,
        )],
    );
    check::<MeasuredView<OfResourceClaim>>(
        OF_REQUIREMENTS,
        &[(
            object!(r#""spec":{"devices":{"requests":[@]}}"#),
            r##"{"name":"#","exactly":{"deviceClassName":"#"}}"##,
        )],
    );
    check::<DeviceClassView>(MOST, &[(object!(r#""spec":{"extendedResourceName":"@"}"#), "a")]);
}

#[test]
fn view_of_a_claim_of_devices_takes_what_is_charged() {
    check::<DeviceClaimView>(
        MOST,
        &[
            (r#"{"metadata":{"name":"a","annotations":{@}}}"#, LABEL),
            (
                object!(r#""spec":{"devices":{"requests":[@]}}"#),
                r##"{"name":"#","exactly":{"adminAccess":true}}"##,
            ),
        ],
    );
    check::<TemplateView>(MOST, &[(object!(r#""spec":{"spec":{@}}"#), LABEL)]);
    // At most 256, which components write.
    let consumer = r##"{"resource":"pods","name":"#","uid":"u"}"##;
    check::<DeviceClaimView>(
        OF_COMPONENTS,
        &[(object!(r#""status":{"reservedFor":[@]}"#), consumer)],
    );
}

#[test]
fn view_of_a_migration_takes_what_is_charged() {
    check::<MigrationView>(MOST, &[(object!(r#""spec":{"resource":{"resource":"@"}}"#), "a")]);
    check::<MigrationView>(
        OF_COMPONENTS,
        &[(object!(r#""status":{"conditions":[@]}"#), CONDITION)],
    );
}

/// Drivers, schedulers and administrators write these.
#[test]
fn views_of_tainted_devices_take_what_is_charged() {
    let toleration = r##"{"key":"#","operator":"Exists"}"##;
    check::<AllocationView>(
        OF_COMPONENTS,
        &[
            (object!(r#""status":{"reservedFor":[@]}"#), r##"{"uid":"#"}"##),
            (
                object!(
                    r#""status":{"allocation":{"devices":{"results":[{"driver":"d","tolerations":[@]}]}}}"#
                ),
                toleration,
            ),
            (
                object!(r#""status":{"allocation":{"devices":{"results":[@]}}}"#),
                r##"{"driver":"d","pool":"p","device":"#"}"##,
            ),
        ],
    );
    check::<DevicesView>(
        OF_COMPONENTS,
        &[
            (object!(r#""spec":{"devices":[@]}"#), r##"{"name":"#"}"##),
            (
                object!(r#""spec":{"devices":[{"name":"d","taints":[@]}]}"#),
                r##"{"key":"#"}"##,
            ),
        ],
    );
    check::<RuleView>(
        OF_COMPONENTS,
        &[(object!(r#""status":{"conditions":[@]}"#), CONDITION)],
    );
}
