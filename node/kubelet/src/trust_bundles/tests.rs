use super::store::Store;
use super::*;
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_x509::{pem_blocks, pem_text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn anchor(byte: u8) -> String {
    pem_text("CERTIFICATE", &[byte; 100])
}

fn bundle(name: &str, signer: &str, labels: Value, anchors: &[u8]) -> ClusterTrustBundle {
    let text: String = anchors.iter().map(|byte| anchor(*byte)).collect();
    let mut spec = json!({ "trustBundle": text });
    if !signer.is_empty() {
        spec["signerName"] = json!(signer);
    }
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).unwrap()
}

fn named(name: &str, optional: bool) -> TrustAnchors {
    TrustAnchors::Named {
        name: name.to_owned(),
        optional,
    }
}

fn signed(signer: &str, selector: Value, optional: bool) -> TrustAnchors {
    TrustAnchors::Signed {
        signer: signer.to_owned(),
        selector: serde_json::from_value(selector).unwrap(),
        optional,
    }
}

/// First bytes of the anchors, sorted; or the error.
fn shown(store: &Store, wanted: &TrustAnchors) -> Result<Vec<u8>, String> {
    let text = store.anchors(wanted).map_err(|error| error.to_string())?;
    let mut found: Vec<u8> = pem_blocks(&text).iter().map(|block| block.content[0]).collect();
    found.sort_unstable();
    Ok(found)
}

fn filled() -> Store {
    let mut store = Store::new(1);
    let all = vec![
        bundle("plain", "", json!({}), &[1, 2]),
        bundle("s.io:s:a", "s.io/s", json!({"alive": "true"}), &[3, 4]),
        bundle("s.io:s:b", "s.io/s", json!({"alive": "true"}), &[4, 5]),
        bundle("s.io:s:c", "s.io/s", json!({"alive": "false"}), &[6]),
        bundle("t.io:t:a", "t.io/t", json!({"alive": "true"}), &[7]),
    ];
    store.replace(all, &BTreeSet::new());
    store
}

#[test]
fn trust_bundles_are_selected_by_name_and_by_signer_and_labels() {
    let store = filled();
    let check = |wanted: &TrustAnchors, expected: Result<&[u8], &str>| {
        let found = shown(&store, wanted);
        assert_eq!(
            found,
            expected.map(<[u8]>::to_vec).map_err(str::to_owned),
            "{wanted:?}"
        );
    };
    check(&named("plain", false), Ok(&[1, 2]));
    check(&named("none", true), Ok(&[]));
    check(
        &named("none", false),
        Err("while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"none\" not found"),
    );
    let alive = json!({"matchLabels": {"alive": "true"}});
    check(&signed("s.io/s", alive.clone(), false), Ok(&[3, 4, 5]));
    check(&signed("s.io/s", json!({}), false), Ok(&[3, 4, 5, 6]));
    let none = "combination of signerName and labelSelector matched zero ClusterTrustBundles";
    check(&signed("s.io/s", Value::Null, false), Err(none));
    check(&signed("s.io/s", Value::Null, true), Ok(&[]));
    check(&signed("u.io/u", alive, false), Err(none));
    let unknown =
        json!({"matchExpressions": [{"key": "alive", "operator": "NotIn", "values": ["true", "false"]}]});
    check(&signed("s.io/s", unknown, true), Ok(&[]));
    let wrong = json!({"matchExpressions": [{"key": "alive", "operator": "Is", "values": ["true"]}]});
    check(
        &signed("s.io/s", wrong, true),
        Err("while parsing label selector: \"Is\" is not a valid label selector operator"),
    );
    let long =
        json!({"matchExpressions": [{"key": "k", "operator": "In", "values": vec!["x".repeat(63); 1601]}]});
    check(
        &signed("s.io/s", long, true),
        Err("label selector length (102467) is larger than 102400"),
    );
}

#[test]
fn trust_anchors_are_written_anew_without_text_and_headers_around_them() {
    let mut store = Store::new(1);
    let text = format!(
        "Root of x\n{}trailing",
        anchor(1).replace("BEGIN CERTIFICATE-----\n", "BEGIN CERTIFICATE-----\nA: b\n\n")
    );
    let spec = json!({"trustBundle": format!("{text}\n{}", anchor(1))});
    let own = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
    store.set(own);
    let found = store.anchors(&named("a", false)).unwrap();
    assert_eq!(std::str::from_utf8(&found).unwrap(), anchor(1));
}

#[test]
fn trust_anchors_stay_in_their_order_while_the_agent_runs_and_have_another_in_the_next() {
    let order = |seed: u64, turned: bool| {
        let mut store = Store::new(seed);
        let mut anchors: Vec<u8> = (0..20).collect();
        if turned {
            anchors.reverse();
        }
        store.set(bundle("a", "", json!({}), &anchors));
        store.anchors(&named("a", false)).unwrap()
    };
    assert_eq!(order(1, false), order(1, true));
    assert_ne!(order(1, false), order(2, false));
}

#[test]
fn trust_bundle_that_changed_or_went_is_not_shown_any_more() {
    let mut store = filled();
    store.set(bundle("plain", "", json!({}), &[9]));
    assert_eq!(shown(&store, &named("plain", false)), Ok(vec![9]));
    store.remove("plain");
    assert!(shown(&store, &named("plain", false)).is_err());
    let only = || vec![bundle("s.io:s:d", "s.io/s", json!({}), &[8])];
    store.replace(only(), &BTreeSet::from(["s.io:s:c"]));
    let of_signer = signed("s.io/s", json!({}), false);
    assert_eq!(shown(&store, &of_signer), Ok(vec![6, 8]), "one is as it was");
    store.replace(only(), &BTreeSet::new());
    assert_eq!(shown(&store, &of_signer), Ok(vec![8]));
}

#[test]
fn trust_bundles_beyond_the_room_of_a_node_fail_the_volumes_that_select_them() {
    let full = "too many ClusterTrustBundles in the cluster: a node keeps 250 bytes of 3 of them".to_owned();
    let mut store = Store::bounded(1, 250, 3);
    store.set(bundle("a", "", json!({}), &[1, 2]));
    store.set(bundle("s.io:s:b", "s.io/s", json!({}), &[3]));
    assert_eq!(shown(&store, &named("a", false)), Ok(vec![1, 2]));
    assert_eq!(
        shown(&store, &signed("s.io/s", json!({}), true)),
        Err(full.clone())
    );
    assert_eq!(shown(&store, &signed("t.io/t", json!({}), true)), Ok(vec![]));
    store.set(bundle("c", "", json!({}), &[]));
    store.set(bundle("d", "", json!({}), &[]));
    assert_eq!(shown(&store, &named("d", true)), Err(full.clone()));
    assert_eq!(shown(&store, &signed("t.io/t", json!({}), true)), Err(full));
    assert_eq!(shown(&store, &named("none", true)), Ok(vec![]));
    store.remove("d");
    store.remove("a");
    store.set(bundle("s.io:s:b", "s.io/s", json!({}), &[3]));
    assert_eq!(
        shown(&store, &signed("s.io/s", json!({}), true)),
        Ok(vec![3]),
        "there is room again"
    );
    for at in 0..10 {
        store.set(bundle(&format!("more {at}"), "", json!({}), &[]));
    }
    assert!(
        shown(&store, &named("more 9", true)).is_err(),
        "nobody knows all that is left out"
    );
}

#[test]
fn trust_bundle_that_changes_wakes_the_pods_that_select_it() {
    let shared = Shared {
        store: Mutex::new(Store::new(1)),
        listed: Watched::new(None),
        users: Mutex::default(),
        wake: OnceLock::new(),
    };
    let woken: Arc<Mutex<Vec<String>>> = Arc::default();
    let into = woken.clone();
    let wake: WakePod = Arc::new(move |uid: &str| into.lock().push(uid.to_owned()));
    assert!(shared.wake.set(wake).is_ok());
    shared.remember("by-name", &named("plain", false));
    shared.remember("by-signer", &signed("s.io/s", json!({}), false));
    let taken = || {
        let mut all = std::mem::take(&mut *woken.lock());
        all.sort();
        all
    };
    let all = |objects| TypedChange::All {
        objects,
        unread: Vec::new(),
    };
    shared.take_in(TypedChange::Failed("away".into()));
    assert_eq!(shared.listed.get(), Some(Err("away".to_owned())));
    shared.take_in(all(Vec::new()));
    assert_eq!(
        taken(),
        ["by-name", "by-signer"],
        "the first list may end a failure"
    );
    shared.take_in(TypedChange::Failed("away".into()));
    assert_eq!(shared.listed.get(), Some(Ok(())), "what was known stays known");
    shared.take_in(TypedChange::Set(bundle("plain", "", json!({}), &[1])));
    assert_eq!(taken(), ["by-name"]);
    shared.take_in(TypedChange::Set(bundle("s.io:s:a", "s.io/s", json!({}), &[1])));
    assert_eq!(taken(), ["by-signer"]);
    shared.take_in(TypedChange::Gone(ObjectHeader {
        key: ObjectKey::new("", "s.io:s:a"),
        ..ObjectHeader::default()
    }));
    assert_eq!(taken(), ["by-signer"]);
    shared.take_in(all(vec![bundle("other", "", json!({}), &[1])]));
    assert_eq!(taken(), ["by-name"], "the list lacks its bundle");
    shared.take_in(all(vec![bundle("other", "", json!({}), &[1])]));
    assert!(taken().is_empty());
}
