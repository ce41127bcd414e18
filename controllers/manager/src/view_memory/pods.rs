//! Views of pods, of any metadata, and of quotas and what they count.

use super::{CONDITION, LABEL, MOST, OF_COMPONENTS, OF_REQUIREMENTS, check};
use crate::resource_quota::views::{DeviceClassView, MeasuredView, OfPod, OfResourceClaim, QuotaView};
use crate::views::PodView;
use machinery_client::view_cost::{USUAL_POD, ViewCost, view_cost};
use machinery_fuzz::resident;

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

/// Bytes of a usual pod's header, and of each view beyond it: decision 0111 says what one view for all would take.
#[test]
fn views_of_usual_pods_are_small() {
    let taken = |cost: ViewCost| cost.taken;
    let header = taken(view_cost::<()>(USUAL_POD, resident).unwrap());
    let controllers = taken(view_cost::<PodView>(USUAL_POD, resident).unwrap()) - header;
    let quotas = taken(view_cost::<MeasuredView<OfPod>>(USUAL_POD, resident).unwrap()) - header;
    for (view, bytes, most) in [
        ("header", header, 1_100),
        ("controllers", controllers, 2_000),
        ("quotas", quotas, 1_000),
    ] {
        assert!(bytes <= most, "{view}: {bytes} bytes");
    }
}
