//! Views of services, endpoints, nodes, namespaces and ranges.

use super::{CONDITION, LABEL, MOST, OF_COMPONENTS, check};
use crate::endpoint_slice::view::SliceView;
use crate::endpoint_slice_mirroring::MirroredView;
use crate::endpoints::EndpointsView;
use crate::node_lifecycle::LeaseView;
use crate::service_cidr::view::{AddressView, CidrView};
use crate::views::{NamespaceView, NodeView, ServiceView};

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
            (object!(r#""status":{"volumesInUse":[@]}"#), r##""#""##),
            (
                object!(r#""status":{"volumesAttached":[@]}"#),
                r##"{"name":"#"}"##,
            ),
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
