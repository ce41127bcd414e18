//! `metrics.k8s.io`: usage of nodes and pods, made on request from the last samples of their kubelets and stored
//! nowhere (metrics-server's `pkg/api`).
//!
//! A list has the objects that exist, as the cluster's own lists of nodes and pods have them, so selectors mean their
//! labels; each with its last usage, and without one it is left out. Limits and revisions of the query are not
//! regarded, as in metrics-server.

use super::{Call, Inner, read};
use crate::body::Body;
use crate::error::ApiError;
use crate::list_memory::Admitted;
use crate::negotiation::{Format, Representation};
use crate::respond::{self, ResponseOptions};
use crate::{NodeUsage, PodUsage, ResourceUsage, Usage};
use crate::{params, table};
use apiserver_registry::columns::{Cell, Column, Columns, name_header};
use apiserver_registry::context::LARGE_BODY_BYTES;
use apiserver_registry::options::{ListOptions, RevisionMatch};
use apiserver_registry::{Entry, RegistryError, Store};
use http::{Response, StatusCode};
use jiff::Timestamp;
use machinery_meta::{GroupResource, ObjectHeader, Quantity, go_duration};
use machinery_schema::{Ref, Strictness, Tree, decode_json};
use serde::{Serialize, Serializer};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of an object beside its labels and containers, and of a container beside its name.
const TEXT_BYTES: usize = 512;
const CONTAINER_BYTES: usize = 128;
/// Copies of a list that there are at once: its objects and the whole.
const COPIES: usize = 2;

/// The group whose kinds are answered here.
pub(super) const GROUP: &str = "metrics.k8s.io";

/// get and list; nothing else is there.
pub(super) async fn answer(call: &Call, endpoints: &Inner) -> Result<Response<Body>, ApiError> {
    let showing = call.response_options()?;
    let source = endpoints.registry.store("", "v1", &call.row().plural);
    let source = source.ok_or(RegistryError::NoSuchResource)?;
    let usage = endpoints.hooks.resource_usage().await;
    let maker = Maker { call, usage: &usage };
    if call.info.verb == "get" {
        return maker.one(&source, showing).await;
    }
    let options = params::list(&call.query, "")?;
    read::check_fields(call.row(), &options.predicate.fields)?;
    let options = ListOptions {
        predicate: options.predicate,
        revision: RevisionMatch::Any,
        ..ListOptions::default()
    };
    let page = source.list(&call.info.scope, &options).await?;
    // Labels are as long as their objects: nothing of them is copied before there is room, and a turn.
    let bytes: usize = page.entries.iter().map(|entry| maker.text_bytes(entry)).sum();
    let room = endpoints
        .list_memory
        .admit_object(&call.ctx, bytes.saturating_mul(COPIES))?;
    call.ctx.heavy_from(bytes, LARGE_BODY_BYTES).await?;
    let texts: Vec<String> = page
        .entries
        .iter()
        .filter_map(|entry| maker.text(entry))
        .collect();
    maker.list(showing, &texts, room)
}

/// Makes the objects of one request.
struct Maker<'a> {
    call: &'a Call,
    usage: &'a ResourceUsage,
}

impl Maker<'_> {
    async fn one(&self, source: &Store, showing: ResponseOptions) -> Result<Response<Body>, ApiError> {
        let (scope, name) = (&self.call.info.scope, &self.call.info.name);
        let entry = source.get(scope, name, RevisionMatch::Any).await?;
        let row = self.call.row();
        let Some(text) = self.text(&entry) else {
            let name = match scope.namespace() {
                "" => name.clone(),
                namespace => format!("{namespace}/{name}"),
            };
            // metrics-server's own name of what it has not.
            let resource = GroupResource::new(
                GROUP,
                if row.namespaced {
                    "podmetrics"
                } else {
                    "nodemetrics"
                },
            );
            return Err(RegistryError::not_found(&resource, &name).into());
        };
        let object = self.tree(&row.gvk.kind, &text)?;
        respond::tree_answer(&self.columns(true), showing, StatusCode::OK, &object)
    }

    fn list(
        &self,
        showing: ResponseOptions,
        texts: &[String],
        room: Admitted,
    ) -> Result<Response<Body>, ApiError> {
        let (row, form) = (self.call.row(), showing.form);
        let head = |kind: &str, version: &str| {
            format!(r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{{}},"items":["#)
        };
        let beta = |beta| if beta { "v1beta1" } else { "v1" };
        let answer = match form.view {
            Representation::Object => {
                let mut whole = head(&row.list_kind, &row.gvk.api_version());
                whole.push_str(&texts.join(","));
                whole.push_str("]}");
                if form.format == Format::Protobuf {
                    respond::tree(StatusCode::OK, form, &self.tree(&row.list_kind, &whole)?)
                } else {
                    respond::json_text(StatusCode::OK, form, whole.into_bytes())
                }
            }
            Representation::Metadata { .. } => Err(ApiError::NotAcceptableView {
                view: "PartialObjectMetadata",
                found: format!("a list (*metrics.{})", row.list_kind),
            }),
            Representation::MetadataList { beta: of } => {
                let version = format!("meta.k8s.io/{}", beta(of));
                let rows = self.rows(texts, |object| respond::metadata_of(object, of))?;
                let head = head("PartialObjectMetadataList", &version);
                respond::json_text(StatusCode::OK, form, closed(head, &rows))
            }
            Representation::Table { beta } => {
                let columns = self.columns(!texts.is_empty());
                let row_of = |object: &Tree| respond::row_of(&columns, showing, object, beta);
                let rows = self.rows(texts, row_of)?;
                let head = table::table_head(&columns, beta, "{}", true);
                respond::json_text(StatusCode::OK, form, closed(head, &rows))
            }
        };
        Ok(room.with(answer?))
    }

    fn rows(&self, texts: &[String], row: impl Fn(&Tree) -> Vec<u8>) -> Result<Vec<Vec<u8>>, RegistryError> {
        let kind = &self.call.row().gvk.kind;
        let rows = texts.iter().map(|text| Ok(row(&self.tree(kind, text)?)));
        rows.collect()
    }

    fn tree(&self, kind: &str, text: &str) -> Result<Tree, RegistryError> {
        let gvk = &self.call.row().gvk;
        let found = machinery_api::schema_for(&gvk.group, &gvk.version, kind);
        let (schema, ty) = found.ok_or(RegistryError::NoSuchResource)?;
        let decoded = decode_json(schema, ty, text.as_bytes(), Strictness::Ignore);
        let mut tree = decoded
            .map_err(|error| RegistryError::Internal(error.to_string()))?
            .tree;
        tree.set_str(&["kind"], kind);
        tree.set_str(&["apiVersion"], &gvk.api_version());
        Ok(tree)
    }

    /// The object of a node or pod, as JSON; none where its usage is not known or it does not run.
    fn text(&self, entry: &Arc<Entry>) -> Option<String> {
        let header = &entry.record.header;
        let object = if self.call.row().namespaced {
            let runs = header.fields.get("status.phase") == Some("Running");
            let usage = self.usage.pods.get(&header.key).filter(|_| runs)?;
            Object::of_pod(header, usage, self.call.ctx.runtime.now())
        } else {
            let usage = self.usage.nodes.get(header.key.name.as_str())?;
            Object::of_node(header, usage, self.call.ctx.runtime.now())
        };
        serde_json::to_string(&object).ok()
    }

    /// About the bytes that [`Self::text`] will have.
    fn text_bytes(&self, entry: &Entry) -> usize {
        let header = &entry.record.header;
        let containers = if self.call.row().namespaced {
            self.usage.pods.get(&header.key).map(|own| own.containers.len())
        } else {
            self.usage.nodes.get(header.key.name.as_str()).map(|_| 0)
        };
        let labels = || {
            header
                .labels
                .iter()
                .map(|(key, value)| key.len() + value.len() + 6)
        };
        containers.map_or(0, |own| {
            TEXT_BYTES + own * CONTAINER_BYTES + labels().sum::<usize>()
        })
    }

    /// metrics-server's columns, which there are where there are rows.
    fn columns(&self, has_rows: bool) -> Columns {
        let column = |name: &str, format: &str| Column {
            name: name.to_owned(),
            kind: "string".to_owned(),
            format: format.to_owned(),
            ..Column::default()
        };
        let mut headers = Vec::new();
        if has_rows {
            headers.push(Column {
                description: "Name of the resource".into(),
                ..name_header()
            });
            headers.extend(["cpu", "memory"].map(|name| column(name, "quantity")));
            headers.push(column("Window", "duration"));
        }
        Columns::new(headers, |object, _| cells(object))
    }
}

fn closed(head: String, rows: &[Vec<u8>]) -> Vec<u8> {
    let mut out = head.into_bytes();
    out.extend(rows.join(&b','));
    out.extend_from_slice(b"]}");
    out
}

/// Name, cpu and memory of all containers together, window.
fn cells(object: Ref<'_>) -> Vec<Cell> {
    let used = |name: &str| {
        let own = object.get("usage").into_iter();
        let of_containers = object.list("containers").filter_map(|one| one.get("usage"));
        let all = own.chain(of_containers);
        let sum = all
            .filter_map(|usage| usage.get(name)?.as_str()?.parse::<Quantity>().ok())
            .reduce(|sum, one| sum + one);
        Cell::Text(sum.unwrap_or_default().to_string())
    };
    vec![
        object.str_at(&["metadata", "name"]).into(),
        used("cpu"),
        used("memory"),
        object.str("window").into(),
    ]
}

#[derive(Serialize)]
struct Object<'a> {
    metadata: Metadata<'a>,
    timestamp: String,
    window: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Amounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    containers: Option<Vec<Container<'a>>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    creation_timestamp: String,
    #[serde(skip_serializing_if = "<[_]>::is_empty", serialize_with = "as_map")]
    labels: &'a [(Box<str>, Box<str>)],
}

#[derive(Serialize)]
struct Container<'a> {
    name: &'a str,
    usage: Amounts,
}

#[derive(Serialize)]
struct Amounts {
    cpu: String,
    memory: String,
}

impl From<Usage> for Amounts {
    fn from(usage: Usage) -> Self {
        let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        Self {
            cpu: Quantity::from_nanos(signed(usage.cpu_nanocores)).to_string(),
            memory: Quantity::from_bytes(signed(usage.memory_bytes)).to_string(),
        }
    }
}

fn as_map<S: Serializer>(labels: &[(Box<str>, Box<str>)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(labels.iter().map(|(key, value)| (key, value)))
}

impl<'a> Object<'a> {
    fn of_node(header: &'a ObjectHeader, usage: &NodeUsage, now: Timestamp) -> Self {
        Self {
            usage: Some(usage.usage.into()),
            ..Self::of(header, usage.at, usage.window, now)
        }
    }

    fn of_pod(header: &'a ObjectHeader, usage: &'a PodUsage, now: Timestamp) -> Self {
        let containers = usage.containers.iter().map(|(name, usage)| Container {
            name,
            usage: (*usage).into(),
        });
        Self {
            containers: Some(containers.collect()),
            ..Self::of(header, usage.at, usage.window, now)
        }
    }

    fn of(header: &'a ObjectHeader, at: Timestamp, window: Duration, now: Timestamp) -> Self {
        Self {
            metadata: Metadata {
                name: &header.key.name,
                namespace: &header.key.namespace,
                creation_timestamp: seconds(now),
                labels: &header.labels,
            },
            timestamp: seconds(at),
            window: go_duration::write_whole_milliseconds(window),
            usage: None,
            containers: None,
        }
    }
}

fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
