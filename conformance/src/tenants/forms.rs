//! Forms of answers: every verb, in each form that a client may request, and in forms that there are not. Of an answer is kept:
//! code, content type, kind of the body (of a watch: of its first event) and reason.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::fixture::{Placed, Sample};
use super::record::Answers;
use super::run::{Answer, Ask, Sender};
use super::{OWN, custom, record};
use crate::protobuf;

/// The file of the answers.
pub const FILE: &str = "tenants/forms.tsv";

/// Kinds of each shape: with columns, without, with a scale, cluster-wide, served in two groups, with a status, with string
/// data, without an update, custom.
const KINDS: [&str; 10] = [
    "pods",
    "configmaps",
    "deployments",
    "nodes",
    "namespaces",
    "events",
    "leases",
    "serviceaccounts",
    "clusterroles",
    // Custom.
    custom::NAMESPACED,
];

const META: &str = "g=meta.k8s.io;v=v1";

/// Whole, as Table and as metadata alone, in each encoding; then forms that are not served.
fn accepts() -> Vec<String> {
    let mut all = Vec::new();
    for encoding in [
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
    ] {
        all.push(encoding.to_owned());
        for form in ["Table", "PartialObjectMetadata", "PartialObjectMetadataList"] {
            all.push(format!("{encoding};as={form};{META}"));
        }
    }
    let others = [
        "*/*",
        "application/*",
        "text/plain",
        "application/json;as=Table;g=meta.k8s.io;v=v1beta1",
        "application/json;as=Nothing;g=meta.k8s.io;v=v1",
        "application/json;stream=watch",
        "application/json;as=Table;g=meta.k8s.io;v=v1, application/json",
        "text/html, application/yaml;q=0.9, */*;q=0.1",
    ];
    all.extend(others.map(str::to_owned));
    all
}

/// All requests with their users: in a namespace by a user with all rights there, of what is cluster-wide by the
/// administrator.
fn requests(samples: &[Sample]) -> Vec<(Option<&'static str>, Ask)> {
    let mut asks = Vec::new();
    for sample in samples
        .iter()
        .filter(|own| KINDS.contains(&own.resource.resource.as_str()))
    {
        let placed = sample.on(OWN, 1);
        let user = sample.resource.namespaced.then_some("all");
        for ask in of(sample, &placed) {
            asks.extend(
                accepts()
                    .into_iter()
                    .map(|accept| (user, ask.clone().accepting(accept))),
            );
        }
    }
    asks
}

fn of(sample: &Sample, placed: &Placed) -> Vec<Ask> {
    const DRY: &str = "dryRun=All";
    const JSON: &str = "application/json";
    let Placed {
        collection,
        name,
        object,
    } = placed;
    let item = format!("{collection}/{name}");
    let change = json!({"metadata": {"labels": {"t": "x"}}});
    let least = json!({"apiVersion": object["apiVersion"], "kind": object["kind"],
        "metadata": {"name": name, "labels": {"t": "x"}}});
    let mut fresh = object.clone();
    fresh["metadata"]["name"] = "fresh".into();
    let no_name = json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": {}});
    let mut asks = vec![
        Ask::plain("GET", &item),
        Ask::plain("GET", &format!("{collection}/nothing")),
        Ask::plain(
            "GET",
            &format!("{collection}?fieldSelector=metadata.name%3D{name}"),
        ),
        Ask::plain("GET", &format!("{collection}?limit=x")),
        Ask::plain(
            "GET",
            &format!("{collection}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3D{name}"),
        ),
        Ask::with_body("POST", &format!("{collection}?{DRY}"), JSON, &no_name).called("no-name"),
        Ask::with_body("PUT", &format!("{item}?{DRY}"), JSON, object),
        Ask::with_body(
            "PATCH",
            &format!("{item}?{DRY}"),
            "application/merge-patch+json",
            &change,
        ),
        Ask::with_body(
            "PATCH",
            &format!("{item}?{DRY}&fieldManager=t&force=true"),
            "application/apply-patch+yaml",
            &least,
        ),
        Ask::plain("DELETE", &format!("{item}?{DRY}")),
    ];
    if sample.resource.namespaced {
        asks.push(Ask::with_body(
            "POST",
            &format!("{collection}?{DRY}"),
            JSON,
            &fresh,
        ));
    }
    if sample.resource.has_verb("deletecollection") {
        asks.push(Ask::plain(
            "DELETE",
            &format!("{collection}?{DRY}&labelSelector=no=one"),
        ));
    }
    let has = |sub: &str| sample.resource.subresources.iter().any(|own| own.name == sub);
    for sub in ["status", "scale"] {
        if has(sub) {
            asks.push(Ask::plain("GET", &format!("{item}/{sub}")));
        }
    }
    asks
}

/// `code content-type kind reason` of an answer.
fn summary(ask: &Ask, answer: &Answer) -> String {
    let (version, kind, reason) = told(ask, answer);
    let code = answer.status.as_u16();
    let form = answer.content_type.replace("; ", ";");
    format!("{code} {form} {version} {kind} {reason}")
        .trim_end()
        .to_owned()
}

/// Version, kind, and the reason of a failure.
fn told(ask: &Ask, answer: &Answer) -> (String, String, String) {
    let of = |value: &Value| {
        let text = |name: &str| value[name].as_str().unwrap_or("-").to_owned();
        (
            text("apiVersion"),
            text("kind"),
            value["reason"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let none = || ("-".to_owned(), "-".to_owned(), String::new());
    if answer.content_type.contains("protobuf") {
        let watched = ask.is_watch() && answer.status.is_success();
        let found = match watched {
            true => protobuf::first_watched(&answer.body),
            false => Ok(Some(&*answer.body)),
        };
        return found
            .ok()
            .flatten()
            .and_then(told_in_protobuf)
            .unwrap_or_else(none);
    }
    if answer.content_type.contains("yaml") {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let line = |name: &str| {
            let found = text
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{name}: ")));
            found.unwrap_or_default().to_owned()
        };
        return (line("apiVersion"), line("kind"), line("reason"));
    }
    if ask.is_watch() && answer.status.is_success() {
        let first = answer
            .body
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let event: Value = serde_json::from_slice(first).unwrap_or_default();
        return of(&event["object"]);
    }
    serde_json::from_slice(&answer.body).map_or_else(|_| none(), |body| of(&body))
}

fn told_in_protobuf(envelope: &[u8]) -> Option<(String, String, String)> {
    let (version, kind) = protobuf::type_meta(envelope).ok()?;
    let reason = match kind.as_str() {
        "Status" => protobuf::status_reason(envelope).ok()?,
        _ => String::new(),
    };
    Some((version, kind, reason))
}

async fn answers(samples: &[Sample], sender: &Sender) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for user in [None, Some("all")] {
        let asks: Vec<Ask> = requests(samples)
            .into_iter()
            .filter(|(own, _)| *own == user)
            .map(|(_, ask)| ask)
            .collect();
        all.extend(sender.each(user.map(|user| (user, None)), &asks, summary).await?);
    }
    Ok(all)
}

/// Writes what a server answers.
pub async fn record(root: &Path, samples: &[Sample], sender: &Sender) -> Result<()> {
    record::write(&root.join(FILE), &answers(samples, sender).await?)
}

/// Lists every answer that differs from the recorded one.
pub async fn compare(
    root: &Path,
    samples: &[Sample],
    sender: &Sender,
    known: &Answers,
) -> Result<Vec<String>> {
    let recorded = record::read(&root.join(FILE))?;
    Ok(record::differences(
        "forms",
        &recorded,
        &answers(samples, sender).await?,
        known,
    ))
}
