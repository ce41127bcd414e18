//! Claims and the pods that use them; cases of upstream's `claiminfo_test.go` and of the state's part in its `manager_test.go`.

use super::checkpoint::{Data, FILE};
use super::claims::*;
use super::pod_claims::{Reference, check, references, requests};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use node_plugin_api::dra::messages::Claim;
use serde_json::{Value, json};

fn object(name: &str, uid: &str, drivers: &[&str]) -> ResourceClaim {
    let results: Vec<Value> = drivers
        .iter()
        .map(|driver| json!({"driver": driver, "pool": "p", "device": "d", "request": "r"}))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": name, "uid": uid},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}},
    }))
    .unwrap()
}

fn info(name: &str, uid: &str, drivers: &[&str]) -> ClaimInfo {
    ClaimInfo::of(&object(name, uid, drivers)).unwrap()
}

fn key(name: &str) -> ClaimKey {
    ("ns".to_owned(), name.to_owned())
}

fn message(name: &str, uid: &str) -> Claim {
    Claim {
        namespace: "ns".to_owned(),
        uid: uid.to_owned(),
        name: name.to_owned(),
    }
}

fn device(requests: &[&str], cdi_ids: &[&str]) -> PreparedDevice {
    let owned = |all: &[&str]| all.iter().map(|own| (*own).to_owned()).collect();
    PreparedDevice {
        pool: "p".to_owned(),
        device: "d".to_owned(),
        share_id: None,
        requests: owned(requests),
        cdi_ids: owned(cdi_ids),
    }
}

/// The uids in each driver's batch.
fn batches(all: &Batches) -> Vec<(&str, Vec<&str>)> {
    all.iter()
        .map(|(driver, claims)| {
            (
                driver.as_str(),
                claims.iter().map(|own| own.uid.as_str()).collect(),
            )
        })
        .collect()
}

#[test]
fn claim_that_is_not_allocated_or_leaves_out_calls_is_refused() {
    let mut claim = object("a", "1", &["d", "e", "d"]);
    let own = ClaimInfo::of(&claim).unwrap();
    assert_eq!(own.drivers.keys().collect::<Vec<_>>(), ["d", "e"]);
    let status = claim.status.as_mut().unwrap();
    let results = status.allocation.as_mut().unwrap().devices.as_mut().unwrap();
    let results = results.results.as_mut().unwrap();
    let skip = |calls: &[&str]| Some(calls.iter().map(|own| (*own).to_owned()).collect());
    // One of the two devices of `d` needs the call.
    results[0].skip_node_operations = skip(&["NodePrepareResources"]);
    ClaimInfo::of(&claim).unwrap();
    for other in ["NodePrepareResources", "*"] {
        let status = claim.status.as_mut().unwrap();
        let results = status.allocation.as_mut().unwrap().devices.as_mut().unwrap();
        results.results.as_mut().unwrap()[2].skip_node_operations = skip(&[other]);
        assert_eq!(
            ClaimInfo::of(&claim).unwrap_err(),
            "DRAOptionalNodeOperations feature gate is disabled on kubelet"
        );
    }
    claim.status = None;
    assert_eq!(ClaimInfo::of(&claim).unwrap_err(), "not allocated");
}

#[test]
fn claims_of_a_pod_are_prepared_by_driver_and_once() {
    let mut claims = Claims::default();
    let wanted = vec![info("a", "1", &["d", "e"]), info("b", "2", &["d"])];
    let first = claims.reserve("pod-1", wanted.clone()).unwrap();
    assert_eq!(batches(&first), [("d", vec!["1", "2"]), ("e", vec!["1"])]);
    // A try that failed halfway does all again, and no device twice.
    claims
        .prepared_by("d", &message("a", "1"), vec![device(&[], &["v/c=a"])])
        .unwrap();
    assert_eq!(claims.reserve("pod-1", wanted.clone()).unwrap(), first);
    claims
        .prepared_by("d", &message("a", "1"), vec![device(&[], &["v/c=a"])])
        .unwrap();
    let ids: Vec<_> = claims.get(&key("a")).unwrap().cdi_ids("").collect();
    assert_eq!(ids, ["v/c=a"]);
    claims.all_prepared(&[key("a"), key("b")]);
    assert_eq!(claims.reserve("pod-2", wanted).unwrap(), Batches::new());
    let (by_driver, all) = claims.in_use();
    assert_eq!(by_driver.into_iter().collect::<Vec<_>>(), [("d", 2), ("e", 1)]);
    assert_eq!(all, 2);
}

#[test]
fn claim_is_taken_back_with_its_last_pod() {
    let mut claims = Claims::default();
    let wanted = vec![info("a", "1", &["d"])];
    claims.reserve("pod-1", wanted.clone()).unwrap();
    claims.reserve("pod-2", wanted.clone()).unwrap();
    claims.all_prepared(&[key("a")]);
    assert_eq!(claims.begin_unprepare("stranger"), Unpreparing::default());
    assert_eq!(claims.begin_unprepare("pod-1"), Unpreparing::default());
    let begun = claims.begin_unprepare("pod-2");
    assert_eq!(
        (batches(&begun.batches), &begun.claims),
        (vec![("d", vec!["1"])], &vec![key("a")])
    );
    assert_eq!(
        claims.reserve("pod-3", wanted.clone()).unwrap_err(),
        "ResourceClaim a is being unprepared"
    );
    // It failed, and is tried again.
    assert_eq!(claims.begin_unprepare("pod-2"), begun);
    claims.unprepared(&begun.claims);
    assert_eq!((claims.get(&key("a")), claims.weight()), (None, 0));
    assert_eq!(
        batches(&claims.reserve("pod-3", wanted).unwrap()),
        [("d", vec!["1"])]
    );
}

#[test]
fn claim_made_anew_under_its_name_waits_for_the_one_before() {
    let mut claims = Claims::default();
    claims.reserve("pod-1", vec![info("a", "1", &["d"])]).unwrap();
    let wanted = vec![info("b", "2", &["d"]), info("a", "3", &["d"])];
    assert_eq!(
        claims.reserve("pod-2", wanted).unwrap_err(),
        "old ResourceClaim with same name a and different UID 1 still exists (previous pod force-deleted?!)"
    );
    assert_eq!(claims.of_pod("pod-2"), [], "it uses none");
    let late = claims.prepared_by("d", &message("a", "3"), Vec::new());
    late.unwrap_err();
}

#[test]
fn claims_have_room_for_what_drivers_answer_within_bounds() {
    let mut claims = Claims::default();
    claims.reserve("pod", vec![info("a", "1", &["d"])]).unwrap();
    let long = "x".repeat(200 << 10);
    claims
        .prepared_by("d", &message("a", "1"), vec![device(&[], &[&long])])
        .unwrap();
    let weight = claims.weight();
    let refused = claims.prepared_by("d", &message("a", "1"), vec![device(&[], &[&long, &long])]);
    assert_eq!(
        refused.unwrap_err(),
        "no room for what DRA driver d has answered for ResourceClaim a"
    );
    assert_eq!(claims.weight(), weight);
    let many = |number: usize| (0..number).map(|_| PreparedDevice::default()).collect::<Vec<_>>();
    claims
        .prepared_by("d", &message("a", "1"), many(3_000))
        .unwrap_err();
    claims.prepared_by("d", &message("a", "1"), Vec::new()).unwrap();
    assert!(!device(&["a\n"], &[]).is_plain() && device(&["a"], &["ö"]).is_plain());
    let all = (0..1_100)
        .map(|number| info(&format!("c{number}"), "u", &["d"]))
        .collect();
    let refused = claims.reserve("greedy", all).unwrap_err();
    assert_eq!(
        refused,
        "pods of namespace ns use 1 ResourceClaims on the node, there is no room for more"
    );
    let many = |namespace: &str| -> Vec<ClaimInfo> {
        let named = |number: usize| ClaimInfo {
            key: (namespace.to_owned(), format!("c{number}")),
            ..info("c", "u", &["d"])
        };
        (0..1_024).map(named).collect()
    };
    // Names that begin alike.
    for namespace in ["n", "n-1", "n1"] {
        claims.reserve(namespace, many(namespace)).unwrap();
    }
    let refused = claims.reserve("late", many("late")).unwrap_err();
    assert_eq!(
        refused,
        "pods of the node use 3073 ResourceClaims, there is no room for more"
    );
    // What is there already takes no more room.
    claims.reserve("other", many("n")).unwrap();
}

fn pod(spec: Value, status: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "p", "uid": "u"}, "spec": spec, "status": status,
    }))
    .unwrap()
}

fn pod_with(claims: Value, of_container: Value, status: Value) -> Pod {
    let container = json!({"name": "main", "resources": {
        "claims": of_container, "requests": {"vendor.example/gpu": "1", "vendor.example/none": "0"},
    }});
    pod(
        json!({"resourceClaims": claims, "containers": [container]}),
        status,
    )
}

#[track_caller]
fn check_names(claims: Value, status: Value, expected: Result<&[(&str, bool)], &str>) {
    let found = references(&pod_with(claims, json!([]), status));
    let found = found.as_ref().map(|all| {
        let names = all.iter().map(|own| (own.name.as_str(), own.is_owned));
        names.collect::<Vec<_>>()
    });
    let expected = expected.map(<[(&str, bool)]>::to_vec);
    assert_eq!(found.map_err(String::as_str), expected);
}

/// Cases of upstream's `TestName`.
#[test]
fn claims_of_a_pod_are_named_by_it_or_by_its_status() {
    let made = |name: Value| json!({"resourceClaimStatuses": [{"name": "t", "resourceClaimName": name}]});
    let named = json!({"name": "n", "resourceClaimName": "own"});
    let of_template = json!({"name": "t", "resourceClaimTemplateName": "template"});
    check_names(json!([named]), json!({}), Ok(&[("own", false)]));
    check_names(json!([named, named]), json!({}), Ok(&[("own", false)]));
    check_names(
        json!([named, of_template]),
        made(json!("p-t-x")),
        Ok(&[("own", false), ("p-t-x", true)]),
    );
    check_names(json!([of_template]), made(Value::Null), Ok(&[]));
    check_names(
        json!([of_template]),
        json!({}),
        Err("pod \"ns/p\": ResourceClaim not created yet"),
    );
    check_names(
        json!([{"name": "x"}]),
        json!({}),
        Err("pod \"ns/p\", spec.resourceClaim \"x\": none of the supported fields are set"),
    );
    let extended = json!({"extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": []}});
    check_names(json!([]), extended, Ok(&[("e", false)]));
}

#[track_caller]
fn check_use(is_owned: bool, owner: &str, reserved_for: &str, expected: Result<(), &str>) {
    let claim: ResourceClaim = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "c", "uid": "cu", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}]},
        "spec": {},
        "status": {"reservedFor": [
            {"resource": "pods", "name": "other", "uid": "other"}, {"resource": "pods", "name": "p", "uid": reserved_for}]},
    }))
    .unwrap();
    let reference = Reference {
        name: "c".to_owned(),
        is_owned,
    };
    let checked = check(&pod(json!({"containers": []}), json!({})), &reference, &claim);
    assert_eq!(checked.as_ref().copied().map_err(String::as_str), expected);
}

#[test]
fn claim_is_used_by_pods_that_it_is_reserved_for() {
    let refused = "pod p (u) is not allowed to use ResourceClaim c (cu)";
    check_use(false, "x", "u", Ok(()));
    check_use(true, "u", "u", Ok(()));
    check_use(false, "u", "x", Err(refused));
    check_use(
        true,
        "x",
        "u",
        Err("ResourceClaim ns/c was not created for Pod ns/p (Pod is not owner)"),
    );
}

/// Cases of upstream's `TestGetResources`, and of containers that name requests.
#[test]
fn container_gets_the_devices_of_its_requests() {
    let mut claims = Claims::default();
    claims
        .reserve("u", vec![info("c", "1", &["d", "e"]), info("x", "2", &["d"])])
        .unwrap();
    let of_d = vec![
        device(&["one"], &["v/c=1", "v/c=1b"]),
        device(&["two"], &["v/c=2"]),
        device(&[], &["v/c=all"]),
    ];
    claims.prepared_by("d", &message("c", "1"), of_d).unwrap();
    claims
        .prepared_by("e", &message("c", "1"), vec![device(&["one"], &["w/c=1"])])
        .unwrap();
    let cdi = |request: &str| -> Vec<String> {
        let claim = claims.get(&key("c")).unwrap();
        claim.cdi_ids(request).cloned().collect()
    };
    assert_eq!(cdi(""), ["v/c=1", "v/c=1b", "v/c=2", "v/c=all", "w/c=1"]);
    assert_eq!(cdi("one"), ["v/c=1", "v/c=1b", "v/c=all", "w/c=1"]);
    assert_eq!(cdi("two"), ["v/c=2", "v/c=all"]);
    assert_eq!(cdi("none"), ["v/c=all"]);
    let named =
        json!([{"name": "n", "resourceClaimName": "c"}, {"name": "unused", "resourceClaimName": "x"}]);
    let extended = json!({"extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": [
        {"containerName": "main", "resourceName": "vendor.example/gpu", "requestName": "container-0-request-0"},
        {"containerName": "main", "resourceName": "vendor.example/none", "requestName": "container-0-request-1"},
        {"containerName": "other", "resourceName": "vendor.example/gpu", "requestName": "container-1-request-0"},
    ]}});
    let own = pod_with(
        named,
        json!([{"name": "n", "request": "two"}, {"name": "n", "request": "one"}]),
        extended,
    );
    let container = &own.spec.as_ref().unwrap().containers[0];
    let found = requests(&own, container).unwrap();
    let expected = [("c", vec!["one", "two"]), ("e", vec!["container-0-request-0"])];
    let found: Vec<(&str, Vec<&str>)> = found
        .iter()
        .map(|(claim, requests)| (claim.as_str(), requests.iter().map(String::as_str).collect()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn checkpoint_is_read_again_in_upstreams_form() {
    let folder = tempfile::tempdir().unwrap();
    let mut claims = Claims::default();
    claims
        .reserve("pod-1", vec![info("a", "1", &["d", "e"])])
        .unwrap();
    let mut shared = device(&["r"], &["v/c=a"]);
    shared.share_id = Some("share".to_owned());
    claims.prepared_by("d", &message("a", "1"), vec![shared]).unwrap();
    claims.all_prepared(&[key("a")]);
    Data::new(claims.iter()).store(folder.path()).unwrap();
    let text = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let data: Value = serde_json::from_str(file["Data"].as_str().unwrap()).unwrap();
    let device = json!({
        "PoolName": "p", "DeviceName": "d", "ShareID": "share", "RequestNames": ["r"], "CDIDeviceIDs": ["v/c=a"],
    });
    let entry = json!({
        "ClaimUID": "1", "ClaimName": "a", "Namespace": "ns", "PodUIDs": {"pod-1": {}},
        "DriverState": {"d": {"Devices": [device]}, "e": {"Devices": null}},
    });
    let expected = json!({
        "kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1", "ClaimInfoStateList": [entry],
    });
    assert_eq!(data, expected);
    let read: Vec<ClaimInfo> = Data::load(folder.path()).unwrap().unwrap().claims().collect();
    let mut known: Vec<ClaimInfo> = claims.iter().cloned().collect();
    // The driver says it again, to the next agent.
    known[0].prepared = false;
    assert_eq!(read, known);
}

#[test]
fn checkpoint_that_is_damaged_is_an_error_and_one_that_is_missing_is_none() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Data::load(folder.path()).unwrap().is_none());
    let mut claims = Claims::default();
    claims.reserve("pod-1", vec![info("a", "1", &["d"])]).unwrap();
    Data::new(claims.iter()).store(folder.path()).unwrap();
    let file = folder.path().join(FILE);
    let text = std::fs::read_to_string(&file).unwrap();
    for damaged in [&text[..text.len() / 2], "", "{}", &text.replace("pod-1", "pod-2")] {
        std::fs::write(&file, damaged).unwrap();
        assert!(Data::load(folder.path()).is_err(), "{damaged}");
    }
}
