//! Running cases.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
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

/// How many cases run at a time.
const CASES_AT_A_TIME: usize = 4;

/// Who asks, where a step does not say; the kubeconfigs of the two servers name different users.
const ADMIN: &str = "admin";
const ADMINS: &str = "system:masters";

/// How often a step with `until` asks, and how long it waits between.
const UNTIL_ATTEMPTS: usize = 50;
const UNTIL_PAUSE: Duration = Duration::from_millis(200);

/// Both servers, and what is known of the kinds.
#[derive(Debug)]
pub struct Runner {
    pub facts: Facts,
    pub upstream: Client,
    pub ours: Client,
    pub runtime: Runtime,
}

/// What became of a case.
#[derive(Debug)]
pub struct Outcome {
    pub id: String,
    /// Readable lines; none when the two servers answered alike.
    pub differences: Vec<String>,
}

/// One server within one case.
struct Side<'a> {
    client: &'a Client,
    variables: Variables,
    mask: Mask,
    watches: HashMap<String, TaskHandle<Result<Answer>>>,
}

impl Runner {
    /// Runs all, telling each outcome as it comes.
    pub async fn run(&self, cases: &[Case], mut tell: impl FnMut(&Outcome)) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(cases.len());
        let mut running = futures::stream::iter(cases.iter().enumerate())
            .map(|(index, case)| self.run_case(index, case))
            .buffer_unordered(CASES_AT_A_TIME);
        while let Some(outcome) = running.next().await {
            tell(&outcome);
            outcomes.push(outcome);
        }
        outcomes.sort_by(|a, b| a.id.cmp(&b.id));
        outcomes
    }

    async fn run_case(&self, index: usize, case: &Case) -> Outcome {
        let differences = match self.steps(index, case).await {
            Ok(differences) => differences,
            Err(problem) => vec![format!("the case could not be run: {problem:#}")],
        };
        Outcome {
            id: case.id.clone(),
            differences,
        }
    }

    async fn steps(&self, index: usize, case: &Case) -> Result<Vec<String>> {
        let mut upstream = self.side(&self.upstream, index, case);
        let mut ours = self.side(&self.ours, index, case);
        self.prepare(&mut upstream, case)
            .await
            .context("preparing upstream")?;
        self.prepare(&mut ours, case).await.context("preparing ours")?;
        let mut lines = Vec::new();
        for (number, step) in case.steps.iter().enumerate() {
            let (left, right) = futures::join!(self.step(&mut upstream, step), self.step(&mut ours, step));
            let (left, right) = (left.context("upstream")?, right.context("ours")?);
            let (Some(left), Some(right)) = (left, right) else {
                continue;
            };
            if !step.compare {
                continue;
            }
            let found = compare::differences(&left, &right);
            if !found.is_empty() {
                lines.push(format!(
                    "step {}: {}",
                    number + 1,
                    upstream.variables.text(&step.request)
                ));
                lines.extend(found.into_iter().map(|line| format!("    {line}")));
            }
        }
        Ok(lines)
    }

    fn side<'a>(&self, client: &'a Client, index: usize, case: &Case) -> Side<'a> {
        let namespace = format!("case-{index}");
        let mut variables = Variables::default();
        variables.set("ns", namespace.clone().into());
        variables.set("index", index.into());
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
            client,
            variables,
            mask: Mask::new(self.runtime.now()),
            watches: HashMap::new(),
        }
    }

    /// A namespace with a service account in it, and what the case requires.
    async fn prepare(&self, side: &mut Side<'_>, case: &Case) -> Result<()> {
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

    /// Takes a step on one side; nothing when there is no answer to see yet.
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

    fn request(&self, variables: &Variables, step: &Step) -> Result<Request<Vec<u8>>> {
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
            // The same name on both sides: objects that tell who made them compare.
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
