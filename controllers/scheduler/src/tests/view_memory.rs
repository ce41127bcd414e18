//! Views take about what their objects are charged, whatever a tenant fills these with: the worst object of each kind that the
//! API takes, as its view. A row for each view; `every_view_is_measured` of `machinery-client` looks for them.

use crate::devices::views::{DeviceClaimView, DeviceClassView, SliceView, TaintRuleView};
use crate::policy::object::WantedPolicy;
use crate::projections::{BudgetView, FullSelector, MapSelector, NodeText, NodeView, PodView};
use crate::sources::LabelsView;
use crate::volumes::views::{
    AttachmentView, CapacityView, ClaimView, ClassView, CsiNodeView, DriverView, VolumeView,
};
use machinery_client::Projection;
use machinery_client::view_cost::{USUAL_POD, ViewCost, assert_views_take, view_cost};
use machinery_fuzz::{filled, resident};

/// Most bytes of a view per byte that its object is charged.
const MOST: f64 = 2.3;
/// The same where nodes write the list, and where a list of the same length stands beside it: limits beside requests.
const OF_NODES: f64 = 6.2;

/// The same of lists that drivers of devices write, of which nodes have few.
const OF_DRIVERS: f64 = 9.0;

/// Asserts that the view of each of these objects, filled with items, takes at most this many times what the store charges.
#[track_caller]
fn check<P: Projection>(most: f64, objects: &[(&str, &str)]) {
    assert_views_take::<P>(most, objects, filled, resident);
}

const LABEL: &str = r##""#":"""##;
const REQUIREMENT: &str = r##"{"key":"#","operator":"Exists"}"##;
const TERM: &str = r##"{"labelSelector":{},"topologyKey":"#"}"##;

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
fn view_of_a_pod_takes_what_is_charged() {
    check::<PodView>(
        MOST,
        &[
            (r#"{"metadata":{"name":"a","labels":{@}}}"#, LABEL),
            (
                r#"{"metadata":{"name":"a","ownerReferences":[@]}}"#,
                r##"{"apiVersion":"v1","kind":"K","name":"n","uid":"#"}"##,
            ),
            (
                object!(r#""spec":{"tolerations":[@]}"#),
                r##"{"key":"#","operator":"Exists"}"##,
            ),
            (object!(r#""spec":{"schedulingGates":[@]}"#), r##"{"name":"#"}"##),
            (object!(r#""spec":{"nodeSelector":{@}}"#), LABEL),
            (
                object!(r#""spec":{"containers":[@]}"#),
                r##"{"name":"#","image":"i"}"##,
            ),
            (
                object!(r#""spec":{"containers":[{"name":"c","ports":[@]}]}"#),
                r##"{"hostPort":1,"containerPort":1,"protocol":"TCP"}"##,
            ),
            (
                object!(r#""spec":{"volumes":[@]}"#),
                r##"{"name":"#","persistentVolumeClaim":{"claimName":"c"}}"##,
            ),
            (
                object!(r#""spec":{"volumes":[@]}"#),
                r##"{"name":"#","awsElasticBlockStore":{"volumeID":"i"}}"##,
            ),
            (
                object!(r#""spec":{"volumes":[@]}"#),
                r##"{"name":"#","image":{"reference":"i"}}"##,
            ),
            (
                object!(r#""spec":{"containers":[{"name":"c","volumeMounts":[@]}]}"#),
                r##"{"name":"#","mountPath":"/a","bindMountOptions":["noexec"]}"##,
            ),
            (
                object!(r#""spec":{"volumes":[{"name":"v","rbd":{"image":"i","monitors":[@]}}]}"#),
                r##""#""##,
            ),
            (
                object!(r#""spec":{"resourceClaims":[@]}"#),
                r##"{"name":"#","resourceClaimName":"c"}"##,
            ),
            (
                object!(r#""status":{"resourceClaimStatuses":[@]}"#),
                r##"{"name":"#","resourceClaimName":"c"}"##,
            ),
            (
                object!(r#""spec":{"topologySpreadConstraints":[@]}"#),
                r##"{"maxSkew":1,"topologyKey":"#","whenUnsatisfiable":"ScheduleAnyway"}"##,
            ),
            (
                object!(
                    r#""spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[@]}]}}}}"#
                ),
                REQUIREMENT,
            ),
            (
                object!(
                    r#""spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[@]}}}}"#
                ),
                "{}",
            ),
            (
                object!(
                    r#""spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":[@]}]}]}}}}"#
                ),
                r##""#""##,
            ),
            (
                object!(
                    r#""spec":{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[@]}}}"#
                ),
                TERM,
            ),
            (
                object!(
                    r#""spec":{"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[@]}}}"#
                ),
                r##"{"weight":1,"podAffinityTerm":{"labelSelector":{},"topologyKey":"#"}}"##,
            ),
            (
                object!(
                    r#""spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"k","labelSelector":{"matchLabels":{@}}}]}}}"#
                ),
                LABEL,
            ),
            (
                object!(
                    r#""spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"k","namespaces":[@]}]}}}"#
                ),
                r##""#""##,
            ),
        ],
    );
    check::<PodView>(
        OF_NODES,
        &[
            (
                object!(r#""spec":{"containers":[{"name":"c","resources":{"requests":{@}}}]}"#),
                r##""a/#":"1""##,
            ),
            (
                object!(r#""status":{"conditions":[@]}"#),
                r##"{"type":"#","status":"True"}"##,
            ),
            (
                object!(r#""status":{"containerStatuses":[@]}"#),
                r##"{"name":"#","allocatedResources":{"cpu":"1"}}"##,
            ),
        ],
    );
}

#[test]
fn views_of_nodes_and_volumes_take_what_is_charged() {
    check::<NodeView>(
        OF_NODES,
        &[
            (r#"{"metadata":{"name":"a","labels":{@}}}"#, LABEL),
            (
                object!(r#""spec":{"taints":[@]}"#),
                r##"{"key":"#","effect":"NoSchedule"}"##,
            ),
            (object!(r#""status":{"allocatable":{@}}"#), r##""a/#":"1""##),
            (object!(r#""status":{"images":[@]}"#), r##"{"names":["#"]}"##),
            (object!(r#""status":{"images":[{"names":[@]}]}"#), r##""#""##),
        ],
    );
    check::<VolumeView>(
        MOST,
        &[(
            object!(
                r#""spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[@]}]}}}"#
            ),
            REQUIREMENT,
        )],
    );
    check::<ClaimView>(
        MOST,
        &[
            (r#"{"metadata":{"name":"a","annotations":{@}}}"#, LABEL),
            (object!(r#""spec":{"volumeName":"@"}"#), "a"),
            (
                object!(r#""spec":{"selector":{"matchExpressions":[@]}}"#),
                REQUIREMENT,
            ),
            (object!(r#""spec":{"accessModes":[@]}"#), r##""#""##),
        ],
    );
    check::<ClassView>(MOST, &[(r#"{"metadata":{"name":"a","labels":{@}}}"#, LABEL)]);
}

#[test]
fn views_that_administrators_and_drivers_write_take_what_is_charged() {
    check::<VolumeView>(MOST, &[(r#"{"metadata":{"name":"a","labels":{@}}}"#, LABEL)]);
    check::<ClassView>(
        OF_NODES,
        &[
            (
                object!(r#""allowedTopologies":[@]"#),
                r##"{"matchLabelExpressions":[{"key":"#","values":[]}]}"##,
            ),
            (
                object!(r#""allowedTopologies":[{"matchLabelExpressions":[{"key":"k","values":[@]}]}]"#),
                r##""#""##,
            ),
        ],
    );
    check::<CsiNodeView>(
        OF_NODES,
        &[(
            object!(r#""spec":{"drivers":[@]}"#),
            r##"{"name":"#","nodeID":"n"}"##,
        )],
    );
    check::<DriverView>(MOST, &[(r#"{"metadata":{"name":"a","labels":{@}}}"#, LABEL)]);
    check::<CapacityView>(
        OF_NODES,
        &[(object!(r#""nodeTopology":{"matchExpressions":[@]}"#), REQUIREMENT)],
    );
    let policy = object!(r#""spec":{"policy":"@"}"#);
    check::<WantedPolicy>(MOST, &[(policy, "a")]);
    check::<AttachmentView>(MOST, &[(object!(r#""spec":{"attacher":"@"}"#), "a")]);
}

#[test]
fn views_of_selectors_take_what_is_charged() {
    check::<LabelsView>(MOST, &[(r#"{"metadata":{"name":"a","labels":{@}}}"#, LABEL)]);
    check::<MapSelector>(MOST, &[(object!(r#""spec":{"selector":{@}}"#), LABEL)]);
    check::<FullSelector>(
        MOST,
        &[
            (object!(r#""spec":{"selector":{"matchLabels":{@}}}"#), LABEL),
            (
                object!(r#""spec":{"selector":{"matchExpressions":[@]}}"#),
                REQUIREMENT,
            ),
        ],
    );
    // Values of requirements are texts of their own still.
    const VALUES: &str = r#"{"metadata":{"name":"a"},"spec":{"selector":{"matchExpressions":[{"key":"k","operator":"In","values":[@]}]}}}"#;
    check::<FullSelector>(5.4, &[(VALUES, r##""#""##)]);
    check::<BudgetView>(5.4, &[(VALUES, r##""#""##)]);
    // Controllers write which pods are disrupted.
    check::<BudgetView>(
        OF_NODES,
        &[
            (
                object!(r#""spec":{"selector":{"matchExpressions":[@]}}"#),
                REQUIREMENT,
            ),
            (object!(r#""status":{"disruptedPods":{@}}"#), r##""#":null"##),
        ],
    );
}

#[test]
fn views_of_devices_take_what_is_charged() {
    let request = r##"{"name":"#","exactly":{"deviceClassName":"c"}}"##;
    check::<DeviceClaimView>(
        MOST,
        &[
            (object!(r#""spec":{"devices":{"requests":[@]}}"#), request),
            (
                object!(r#""spec":{"devices":{"requests":[{"name":"r","exactly":{"selectors":[@]}}]}}"#),
                r##"{"cel":{"expression":"#"}}"##,
            ),
            (
                object!(r#""spec":{"devices":{"constraints":[{"requests":[@],"matchAttribute":"a/b"}]}}"#),
                r##""#""##,
            ),
            (
                object!(r#""status":{"reservedFor":[@]}"#),
                r##"{"resource":"pods","name":"#","uid":"u"}"##,
            ),
            (
                r#"{"metadata":{"name":"a","ownerReferences":[@]}}"#,
                r##"{"apiVersion":"v1","kind":"K","name":"n","uid":"#"}"##,
            ),
        ],
    );
    check::<TaintRuleView>(MOST, &[(r#"{"metadata":{"name":"a","labels":{@}}}"#, LABEL)]);
    // Administrators and drivers write these.
    check::<DeviceClassView>(
        OF_NODES,
        &[(
            object!(r#""spec":{"selectors":[@]}"#),
            r##"{"cel":{"expression":"#"}}"##,
        )],
    );
    check::<SliceView>(
        OF_DRIVERS,
        &[
            (
                object!(r#""spec":{"driver":"d","pool":{"name":"p"},"devices":[@]}"#),
                r##"{"name":"#","attributes":{"a":{"int":1}}}"##,
            ),
            (
                object!(
                    r#""spec":{"driver":"d","pool":{"name":"p"},"devices":[{"name":"d","attributes":{@}}]}"#
                ),
                r##""#":{"bool":true}"##,
            ),
        ],
    );
}

#[test]
fn view_of_a_node_for_extenders_takes_what_is_charged() {
    check::<NodeText>(MOST, &[(r#"{"metadata":{"name":"a","labels":{@}}}"#, LABEL)]);
}

/// Bytes of a usual pod's view beyond its header: decision 0111 says what one view for all would take.
#[test]
fn view_of_a_usual_pod_is_small() {
    let taken = |cost: ViewCost| cost.taken;
    let header = taken(view_cost::<()>(USUAL_POD, resident).unwrap());
    let own = taken(view_cost::<PodView>(USUAL_POD, resident).unwrap()) - header;
    assert!(own <= 2_900, "{own} bytes");
}
