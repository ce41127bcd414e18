//! The ConfigMap from which aggregated servers learn whose client certificates and front proxies to trust, kept in step with
//! the authorities that this server reads again, and together with those of other servers on the same storage.

use super::{ObjectAddress, Startup};
use crate::trust::{Trust, bundle};
use apiserver_auth::authn::certificate_bundle;
use apiserver_registry::{ObjectPart, RegistryError};
use futures::future::BoxFuture;
use http::HeaderName;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;
use serde_json::{Map, Value, json};
use std::time::Duration;
use x509_parser::prelude::{FromDer, X509Certificate};

pub(super) const PLACE: ObjectAddress<'_> = ObjectAddress {
    group: "",
    plural: "configmaps",
    namespace: "kube-system",
    name: "extension-apiserver-authentication",
};

const CLIENT_CA: &str = "client-ca-file";
const PROXY_CA: &str = "requestheader-client-ca-file";
/// Authorities that ended this long ago are taken out, as upstream does.
const EXPIRED_SLACK: SignedDuration = SignedDuration::from_mins(5);
/// The clock ends authorities too, so the object is looked at this often at least.
const RESYNC: Duration = Duration::from_secs(60);

/// Writes it now, and again after every change of the object and of the authorities.
pub(super) fn keep(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        reconcile(facts).await?;
        let own = facts.clone();
        let keeping = move || {
            let facts = own.clone();
            async move {
                if let Err(error) = follow(&facts).await {
                    tracing::error!(%error, "the extension-apiserver-authentication ConfigMap cannot be watched");
                }
            }
        };
        let runtime = &facts.core.runtime;
        runtime.keep("authorities of extensions", keeping).detach();
        Ok(())
    })
}

/// Reconciles after every change, for ever; an error is that config maps are not served.
async fn follow(facts: &Startup) -> Result<(), RegistryError> {
    let mut follower = facts.follow(PLACE)?;
    loop {
        tokio::select! { biased;
            () = facts.core.trust.changed.notified() => {}
            _ = follower.next() => {}
            () = facts.core.runtime.sleep(RESYNC) => {}
        }
        if let Err(error) = reconcile(facts).await {
            tracing::warn!(%error, "reconciling the extension-apiserver-authentication ConfigMap failed");
            follower.begin_again();
        }
    }
}

async fn reconcile(facts: &Startup) -> Result<(), RegistryError> {
    let (trust, now) = (&facts.core.trust, facts.core.runtime.now());
    let existing = facts.read(PLACE).await?;
    let Some(existing) = existing else {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": PLACE.name, "namespace": PLACE.namespace },
            "data": wanted(trust, &Map::new(), now),
        });
        return facts.create(PLACE, &object.to_string()).await.map(drop);
    };
    let data = existing
        .get("data")
        .map(|data| data.to_json())
        .unwrap_or_default();
    let data: Map<String, Value> = serde_json::from_str(&data).unwrap_or_default();
    let change = patch(&data, wanted(trust, &data, now));
    match facts.patch(PLACE, ObjectPart::Main, &change).await {
        // What others wrote fills the object: it starts over with our own part.
        Err(RegistryError::Invalid { .. }) => {
            let own = wanted(trust, &Map::new(), now);
            facts.patch(PLACE, ObjectPart::Main, &patch(&data, own)).await
        }
        other => other,
    }
}

/// A merge patch that leaves nothing but what is wanted.
fn patch(existing: &Map<String, Value>, mut wanted: Map<String, Value>) -> String {
    for name in existing.keys() {
        wanted.entry(name.clone()).or_insert(Value::Null);
    }
    json!({ "data": wanted }).to_string()
}

/// The object's data: what this server trusts behind what the object says already.
fn wanted(trust: &Trust, existing: &Map<String, Value>, now: Timestamp) -> Map<String, Value> {
    let proxies = &trust.proxies;
    let headers = proxies.headers();
    let names = |own: &[HeaderName]| {
        own.iter()
            .map(|name| canonical(name.as_str()))
            .collect::<Vec<_>>()
    };
    let prefixes = headers.extra_prefix.iter().map(|prefix| canonical(prefix));
    let lists = [
        ("requestheader-allowed-names", proxies.allowed_names().to_vec()),
        ("requestheader-extra-headers-prefix", prefixes.collect()),
        ("requestheader-group-headers", names(&headers.group)),
        ("requestheader-uid-headers", names(&headers.uid)),
        ("requestheader-username-headers", names(&headers.username)),
    ];
    let mut data = Map::new();
    for (key, certificates) in [
        (CLIENT_CA, trust.clients.authorities()),
        (PROXY_CA, proxies.authorities()),
    ] {
        data.insert(
            key.to_owned(),
            combined(existing.get(key), certificates, now).into(),
        );
    }
    for (key, own) in lists {
        let mut all: Vec<String> = existing
            .get(key)
            .and_then(|text| serde_json::from_str(text.as_str()?).ok())
            .unwrap_or_default();
        for one in own {
            if !all.contains(&one) {
                all.push(one);
            }
        }
        let needed = key != "requestheader-uid-headers" || !all.is_empty();
        if needed {
            data.insert(key.to_owned(), Value::from(all).to_string().into());
        }
    }
    data
}

/// Names of headers as Go writes them.
fn canonical(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
            .unwrap_or_default()
    };
    name.split('-').map(capital).collect::<Vec<_>>().join("-")
}

fn combined(existing: Option<&Value>, own: Vec<CertificateDer<'static>>, now: Timestamp) -> String {
    let existing = existing.and_then(|text| certificate_bundle(text.as_str()?).ok());
    let mut all: Vec<CertificateDer<'static>> = Vec::new();
    for one in existing.into_iter().flatten().chain(own) {
        if !has_ended(&one, now) && !all.contains(&one) {
            all.push(one);
        }
    }
    bundle(&all)
}

fn has_ended(certificate: &[u8], now: Timestamp) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, own)| own.validity().not_after.timestamp() <= (now - EXPIRED_SLACK).as_second())
}
