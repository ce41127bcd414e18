//! Tests of the choice among a service's endpoints.

use super::*;
use apiserver_registry::RequestContext;
use machinery_meta::reader::{ObjectReader, ReadFuture, ReadObject};
use machinery_meta::{ObjectHeader, Predicate, Revision, UserInfo};
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;

/// Slices by name, each of the service that has the first letter of its name, and the pods `p-ADDRESS`; writes down which
/// slices are copied.
#[derive(Default)]
struct Objects {
    slices: Vec<(&'static str, String)>,
    copied: Mutex<Vec<String>>,
}

impl Objects {
    fn of<const N: usize>(slices: [(&'static str, String); N]) -> Self {
        Self {
            slices: slices.into(),
            ..Self::default()
        }
    }

    fn header(name: &str) -> ObjectHeader {
        let mut header = ObjectHeader {
            key: ObjectKey::new("default", name),
            ..ObjectHeader::default()
        };
        header.labels.push((SERVICE_NAME.into(), name[..1].into()));
        header
    }

    fn json(&self, resource: &GroupResource, name: &str) -> Option<String> {
        if resource.resource == "pods" {
            let address = name.strip_prefix("p-")?;
            return Some(format!(r#"{{"status":{{"podIPs":[{{"ip":"{address}"}}]}}}}"#));
        }
        self.copied.lock().push(name.to_owned());
        let slice = self.slices.iter().find(|(own, _)| *own == name)?;
        Some(slice.1.clone())
    }
}

impl ObjectReader for Objects {
    fn get<'a>(
        &'a self,
        resource: &'a GroupResource,
        key: &'a ObjectKey,
    ) -> ReadFuture<'a, Option<ReadObject>> {
        let found = self.json(resource, &key.name).map(|json| ReadObject {
            header: Arc::new(Self::header(&key.name)),
            revision: Revision(1),
            json: json.into_bytes(),
        });
        Box::pin(ready(Ok(found)))
    }

    fn list<'a>(&'a self, _: &'a GroupResource, _: &'a str) -> ReadFuture<'a, Vec<ReadObject>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    fn versions<'a>(
        &'a self,
        _: &'a GroupResource,
        _: &'a str,
        predicate: &'a Predicate,
    ) -> ReadFuture<'a, Vec<(ObjectKey, Revision)>> {
        let headers = self.slices.iter().map(|(name, _)| Self::header(name));
        let matching = headers.filter(|header| predicate.matches(header));
        let versions = matching.map(|header| (header.key, Revision(1))).collect();
        Box::pin(ready(Ok(versions)))
    }
}

/// A slice with the port `web`, 80.
fn slice(family: &str, addresses: &[&str]) -> String {
    let endpoint = |address: &&str| {
        let target = format!(r#"{{"namespace":"default","name":"p-{address}"}}"#);
        format!(r#"{{"addresses":["{address}"],"targetRef":{target}}}"#)
    };
    let endpoints: Vec<String> = addresses.iter().map(endpoint).collect();
    let endpoints = endpoints.join(",");
    format!(r#"{{"addressType":"{family}","ports":[{{"name":"web","port":80}}],"endpoints":[{endpoints}]}}"#)
}

/// The endpoint chosen, and whether the request became heavy.
async fn chosen(objects: &Objects, port: &str, choice: u64) -> (Result<String, RegistryError>, bool) {
    let ctx = RequestContext::internal(
        UserInfo::named("anna", [UserInfo::AUTHENTICATED]),
        Runtime::real(),
    );
    let mut lookup = Lookup::new(objects, &ctx);
    let found = find(&mut lookup, ("default", "a"), port, choice).await;
    (found.map(|(host, _)| host), ctx.weight.is_heavy())
}

#[tokio::test]
async fn service_endpoint_copies_no_slices_of_other_services() {
    let empty = || "{}".to_owned();
    let objects = Objects::of([
        ("a-1", empty()),
        ("b-1", empty()),
        ("a-2", empty()),
        ("c-1", empty()),
    ]);
    let (found, is_heavy) = chosen(&objects, "web", 0).await;
    assert!(matches!(found, Err(RegistryError::Unavailable(_))), "{found:?}");
    assert!(!is_heavy);
    let copied: BTreeSet<String> = objects.copied.lock().drain(..).collect();
    assert_eq!(copied, ["a-1".to_owned(), "a-2".to_owned()].into());
}

#[tokio::test]
async fn service_endpoint_is_one_of_any_slice() {
    let objects = Objects::of([
        ("a-1", slice("IPv4", &["10.0.0.1", "10.0.0.2"])),
        ("a-2", slice("IPv4", &["10.0.0.3"])),
        ("a-3", slice("IPv4", &["10.0.0.4"])),
    ]);
    let mut all = BTreeSet::new();
    for choice in 0..200_u64 {
        let choice = choice.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        all.insert(chosen(&objects, "web", choice).await.0.unwrap());
    }
    assert_eq!(all.len(), 4, "{all:?}");
}

#[tokio::test]
async fn service_endpoint_is_of_the_primary_family_where_there_is_one() {
    let second = ("a-1", slice("IPv6", &["fd00::1"]));
    let both = Objects::of([second.clone(), ("a-2", slice("IPv4", &["10.0.0.1"]))]);
    let only = Objects::of([second]);
    for choice in 0..20_u64 {
        let choice = choice.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        assert_eq!(chosen(&both, "web", choice).await.0.unwrap(), "10.0.0.1");
        assert_eq!(chosen(&only, "web", choice).await.0.unwrap(), "fd00::1");
    }
}

#[tokio::test]
async fn service_endpoint_has_a_port_of_this_name() {
    let unnamed = slice("IPv4", &["10.0.0.1"]).replace(r#""name":"web","#, "");
    let objects = Objects::of([("a-1", unnamed)]);
    assert!(chosen(&objects, "", 0).await.0.is_err());
    let empty = slice("IPv4", &["10.0.0.1"]).replace("web", "");
    assert!(chosen(&Objects::of([("a-1", empty)]), "", 0).await.0.is_ok());
}

#[tokio::test]
async fn service_endpoint_is_heavy_where_much_is_read_for_it() {
    let usual = Objects::of([("a-1", slice("IPv4", &["10.0.0.1"; 100]))]);
    let (found, is_heavy) = chosen(&usual, "web", 7).await;
    assert!(found.is_ok() && !is_heavy);
    // No pod has the addresses of these, so that all of them are read.
    let strange = |name| (name, slice("IPv4", &["10.0.0.1"; 300]).replace("p-", "q-"));
    let (found, is_heavy) = chosen(
        &Objects::of([strange("a-1"), strange("a-2"), strange("a-3")]),
        "web",
        7,
    )
    .await;
    assert!(found.is_err() && is_heavy);
}
