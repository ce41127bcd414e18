//! Repair: changes of others are noticed, and our own are not taken for theirs.

use crate::world::{POD1, World};
use crate::{elements_of, whole_table};
use node_proxy::elements::{Delta, Wanted};
use node_proxy::netlink;
use node_proxy::table::TABLE;
use node_sys::nftables::Table;
use node_sys::nftables_watch::TableWatch;
use serde_json::json;

const GUARDED: &[Table] = &[Table::ip(TABLE)];

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn table_watch_notices_what_others_take_away() {
    let world = World::new('r').await;
    let service = json!({"spec": {"clusterIP": "10.96.0.5", "ports": [{"name": "t", "port": 80}]}});
    let wanted = elements_of(&service, &[(POD1, "here")], &Wanted::new());
    // Its socket belongs to the namespace, and a scope of the executor is needed to make it.
    let handle = tokio::runtime::Handle::current();
    let mut watch = world.inside("node", || {
        let _entered = handle.enter();
        TableWatch::open(GUARDED).unwrap()
    });
    world.apply(whole_table(wanted.clone())).await;
    assert!(watch.settle().unwrap(), "the table is there");
    let delta = Delta {
        delete: wanted.clone(),
        ..Delta::default()
    };
    world.inside("node", || netlink::batch(&delta).apply()).unwrap();
    let nothing_yet = |watch: &mut TableWatch| {
        use futures::FutureExt;
        watch.disturbed().now_or_never().is_none()
    };
    assert!(watch.settle().unwrap());
    assert!(nothing_yet(&mut watch), "a change of our own");
    world.apply("add table ip others; delete table ip others").await;
    assert!(nothing_yet(&mut watch), "somebody else's table");
    for disturbance in [
        format!("flush chain ip {TABLE} service"),
        format!("delete table ip {TABLE}"),
        format!("table ip {TABLE} {{ }}"),
        "flush ruleset".to_owned(),
    ] {
        world.apply(disturbance.clone()).await;
        watch.disturbed().await.unwrap();
        let present = watch.settle().unwrap();
        assert_eq!(
            present,
            disturbance.contains("chain") || disturbance.contains('{'),
            "{disturbance}"
        );
    }
}
