//! The steps of a case, taken on one server.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http::Request;
use machinery_runtime::{Runtime, TaskHandle};
use serde_json::{Value, json};

use super::case::{Case, Step};
use super::client::{Answer, Client};
use super::compare::{self, Seen};
use super::mask::Mask;
use super::template::{self, Variables};
use crate::facts::Facts;
use crate::protobuf;

/// User of a step that names none; the kubeconfigs of the two servers name different users.
const ADMIN: &str = "admin";
const ADMINS: &str = "system:masters";

/// Number of attempts of a step with `until`, and the pause between them.
const UNTIL_ATTEMPTS: usize = 50;
const UNTIL_PAUSE: Duration = Duration::from_millis(200);

/// One server that answers cases, and what is known of the kinds.
#[derive(Debug, Clone)]
pub struct Server {
    pub facts: Arc<Facts>,
    pub client: Client,
    pub runtime: Runtime,
}

/// The masked answers of one server to the compared steps of a case.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transcript(pub Vec<StepAnswer>);

/// The masked answer to one step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepAnswer {
    /// From 1.
    pub step: usize,
    /// Method and path.
    pub request: String,
    pub seen: Seen,
}

/// One server within one case.
pub(super) struct Side<'a> {
    pub client: &'a Client,
    pub variables: Variables,
    mask: Mask,
    watches: HashMap<String, TaskHandle<Result<Answer>>>,
}

impl Server {
    /// Takes all steps of a case in a namespace of its own.
    ///
    /// # Errors
    /// A step that cannot be sent, whose answer does not come, or that waits for what never happens.
    pub async fn answers(&self, case: &Case) -> Result<Transcript> {
        let mut side = self.side(case);
        self.prepare(&mut side, case).await.context("preparing")?;
        let mut answers = Vec::new();
        for (index, step) in case.steps.iter().enumerate() {
            let line = side.variables.text(&step.line());
            let number = index + 1;
            let seen = self
                .step(&mut side, step)
                .await
                .with_context(|| format!("step {number}: {line}"))?;
            if let Some(seen) = seen
                && step.compare
            {
                answers.push(StepAnswer {
                    step: number,
                    request: line,
                    seen,
                });
            }
        }
        Ok(Transcript(answers))
    }

    /// The version of the server.
    ///
    /// # Errors
    /// An answer that has none.
    pub async fn version(&self) -> Result<String> {
        let request = Request::get("/version").body(Vec::new())?;
        let answer = self.client.send(request, false).await?;
        let body: Value = serde_json::from_slice(&answer.body)?;
        let version = body["gitVersion"]
            .as_str()
            .context("/version has no gitVersion")?;
        Ok(version.to_owned())
    }

    pub(super) fn side<'a>(&'a self, case: &Case) -> Side<'a> {
        let namespace = case.namespace();
        let mut variables = Variables::default();
        variables.set("ns", namespace.clone().into());
        variables.set("index", case.index().into());
        if let Some(subject) = &case.subject {
            let object = variables.value(&subject.object);
            let name = object["metadata"]["name"].clone();
            let collection = subject.resource.collection(&namespace);
            let item = format!("{collection}/{}", name.as_str().unwrap_or_default());
            variables.set("object", object);
            variables.set("name", name);
            variables.set("kind", subject.resource.kind.clone().into());
            variables.set("apiVersion", subject.resource.api_version().into());
            variables.set("collection", collection.into());
            variables.set("item", item.into());
        }
        Side {
            client: &self.client,
            variables,
            mask: Mask::new(self.runtime.now()),
            watches: HashMap::new(),
        }
    }

    /// A namespace with a service account in it, and what the case requires.
    pub(super) async fn prepare(&self, side: &mut Side<'_>, case: &Case) -> Result<()> {
        let mut objects = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}"}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
        ];
        objects.extend(case.requires.iter().cloned());
        for object in objects {
            let of = |name: &str| object[name].as_str().unwrap_or_default();
            let resource = self
                .facts
                .resource_of(of("apiVersion"), of("kind"))
                .with_context(|| format!("no resource keeps {} {}", of("apiVersion"), of("kind")))?;
            let path = side.variables.text(&resource.collection("{ns}"));
            let body = serde_json::to_vec(&side.variables.value(&object))?;
            let request = Request::post(path)
                .header("content-type", "application/json")
                .body(body)?;
            let answer = side.client.send(request, false).await?;
            // A controller may have made the service account before us.
            if !answer.status.is_success() && answer.status != 409 {
                anyhow::bail!(
                    "creating {}: {}",
                    of("kind"),
                    String::from_utf8_lossy(&answer.body)
                );
            }
        }
        Ok(())
    }

    /// Takes a step; nothing when there is no answer to see yet.
    async fn step(&self, side: &mut Side<'_>, step: &Step) -> Result<Option<Seen>> {
        let answer = if let Some(name) = &step.finish {
            let watch = side
                .watches
                .remove(name)
                .with_context(|| format!("no watch {name} was started"))?;
            watch.await??
        } else {
            let anonymous = step.user.as_deref() == Some("anonymous");
            let request = self.request(&side.variables, step)?;
            match step.watch {
                None => self.ask(side.client, request, anonymous, &step.until).await?,
                Some(count) => {
                    let watch = side.client.watch(request, anonymous).await?;
                    if let Some(name) = &step.start {
                        let task = self.runtime.spawn("watch", watch.collect(count));
                        side.watches.insert(name.clone(), task);
                        return Ok(None);
                    }
                    watch.collect(count).await?
                }
            }
        };
        let body = compare::document(&self.facts, &answer)?;
        for (name, path) in &step.save {
            let value = template::at(&body, path).cloned().unwrap_or(Value::Null);
            side.variables.set(name, value);
        }
        Ok(Some(compare::see(&answer, body, &mut side.mask, &step.ignore)))
    }

    /// Sends, and again until the answer is the one waited for.
    async fn ask(
        &self,
        client: &Client,
        request: Request<Vec<u8>>,
        anonymous: bool,
        until: &BTreeMap<String, Value>,
    ) -> Result<Answer> {
        for _ in 0..UNTIL_ATTEMPTS {
            let answer = client.send(request.clone(), anonymous).await?;
            let body = compare::document(&self.facts, &answer)?;
            let as_wanted = |(path, wanted): (&String, &Value)| template::at(&body, path) == Some(wanted);
            if until.iter().all(as_wanted) {
                return Ok(answer);
            }
            self.runtime.sleep(UNTIL_PAUSE).await;
        }
        anyhow::bail!("{} never came to {until:?}", request.uri())
    }

    pub(super) fn request(&self, variables: &Variables, step: &Step) -> Result<Request<Vec<u8>>> {
        let line = variables.text(&step.request);
        let (method, path) = line
            .split_once(' ')
            .with_context(|| format!("{line:?} is not METHOD path"))?;
        let mut request = Request::builder().method(method).uri(path);
        let body = self.body(variables, step)?;
        if body.is_some() || step.type_.is_some() {
            let type_ = step.type_.as_deref().unwrap_or("json");
            request = request.header("content-type", media_type(type_));
        }
        if let Some(accept) = &step.accept {
            request = request.header("accept", media_type(accept));
        }
        match step.user.as_deref() {
            Some("anonymous") => {}
            Some(user) => request = request.header("impersonate-user", user),
            // The same name on both sides: objects that name their maker compare.
            None if !step.headers.contains_key("impersonate-group") => {
                request = request
                    .header("impersonate-user", ADMIN)
                    .header("impersonate-group", ADMINS);
            }
            None => {}
        }
        for (name, value) in &step.headers {
            request = request.header(name, variables.text(value));
        }
        Ok(request.body(body.unwrap_or_default())?)
    }

    fn body(&self, variables: &Variables, step: &Step) -> Result<Option<Vec<u8>>> {
        if let Some(text) = &step.text {
            return Ok(Some(variables.text(text).into_bytes()));
        }
        if let Some((before, unit, count, after)) = &step.large {
            return Ok(Some(
                format!("{before}{}{after}", unit.repeat(*count)).into_bytes(),
            ));
        }
        if let Some(hex) = &step.hex {
            return Ok(Some(from_hex(hex)?));
        }
        let Some(body) = &step.body else {
            return Ok(None);
        };
        let mut body = variables.value(body);
        if let Some(with) = &step.with {
            template::merge(&mut body, &variables.value(with));
        }
        Ok(Some(match step.type_.as_deref() {
            Some("protobuf") => protobuf::encode(&self.facts, &body)?,
            _ => serde_json::to_vec(&body)?,
        }))
    }
}

fn media_type(name: &str) -> &str {
    match name {
        "json" => "application/json",
        "yaml" => "application/yaml",
        "protobuf" => "application/vnd.kubernetes.protobuf",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "json-patch" => "application/json-patch+json",
        "apply" => "application/apply-patch+yaml",
        "table" => "application/json;as=Table;g=meta.k8s.io;v=v1",
        "partial" => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        "partial-list" => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        full => full,
    }
}

fn from_hex(text: &str) -> Result<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?))
        .collect()
}
