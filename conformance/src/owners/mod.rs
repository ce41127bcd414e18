//! Owners of fields, as the real kube-apiserver records them: `conformance/owners/cases.yaml` are requests,
//! `conformance/owners/answers.tsv` what it answered.
//!
//! Of an answer are kept: its code; of a failure the message; of an object the entries of `metadata.managedFields`, sorted
//! (those of one second have no order of their own), whether each has a time, and whether the object was written.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tenants::record::Answers;
use crate::tenants::run::{Answer, Ask, Sender};

/// Number of checks whether a definition is served, and the pause between them.
const WAITS: usize = 100;
const WAIT: Duration = Duration::from_millis(200);

/// A story in a namespace of its own.
#[derive(Debug, Deserialize)]
pub struct Case {
    pub case: String,
    pub steps: Vec<Step>,
}

/// One request.
#[derive(Debug, Deserialize)]
pub struct Step {
    pub request: String,
    #[serde(rename = "type")]
    pub patch: Option<String>,
    pub body: Option<Value>,
    /// The condition that the object made must have before the next step.
    pub wait: Option<String>,
}

/// Sends all cases and writes the answers.
pub async fn record(root: &Path, sender: &Sender) -> Result<()> {
    let answers = answers(root, sender).await?;
    let mut text =
        String::from("# What kube-apiserver v1.37.1 answers; written by `cargo xtask owners --record`.\n");
    for (id, answer) in answers {
        text.push_str(&format!("{id}\t{answer}\n"));
    }
    let path = root.join("owners/answers.tsv");
    fs::write(&path, text).with_context(|| path.display().to_string())
}

/// Sends all cases and lists every answer that differs from the recorded one.
pub async fn compare(root: &Path, sender: &Sender) -> Result<Vec<String>> {
    let recorded: Answers = crate::tenants::record::read(&root.join("owners/answers.tsv"))?;
    let mut lines = Vec::new();
    for (id, answer) in answers(root, sender).await? {
        let expected = recorded.get(&id).map_or("not recorded", String::as_str);
        if expected != answer {
            lines.push(format!("{id}\n    upstream: {expected}\n    ours:     {answer}"));
        }
    }
    Ok(lines)
}

async fn answers(root: &Path, sender: &Sender) -> Result<Vec<(String, String)>> {
    let path = root.join("owners/cases.yaml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let cases: Vec<Case> = serde_saphyr::from_str(&text)?;
    let mut answers = Vec::new();
    for case in &cases {
        run(sender, case, &mut answers).await?;
    }
    Ok(answers)
}

async fn run(sender: &Sender, case: &Case, answers: &mut Vec<(String, String)>) -> Result<()> {
    let namespace = format!("owners-{}", case.case);
    let own = json!({"metadata": {"name": namespace}});
    let made = Ask::with_body("POST", "/api/v1/namespaces", "application/json", &own);
    let made = sender.send(None, &made).await?;
    if !made.status.is_success() {
        bail!("{namespace}: {}", String::from_utf8_lossy(&made.body));
    }
    let mut revision = String::new();
    for (number, step) in case.steps.iter().enumerate() {
        let ask = ask(step, &namespace)?;
        let answer = sender.send(None, &ask).await?;
        if let Some(condition) = &step.wait {
            wait(sender, &ask, step, condition).await?;
        }
        let id = format!("{} {:02} {}", case.case, number + 1, step.request);
        answers.push((id, summary(&answer, &namespace, &mut revision)));
    }
    Ok(())
}

fn ask(step: &Step, namespace: &str) -> Result<Ask> {
    let filled = step.request.replace("{ns}", namespace);
    let (method, path) = filled.split_once(' ').context("METHOD path")?;
    let method = match method {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        other => bail!("{other} is no method"),
    };
    let Some(body) = &step.body else {
        return Ok(Ask::plain(method, path));
    };
    let content_type = match step.patch.as_deref() {
        None => "application/json",
        Some("json") => "application/json-patch+json",
        Some("merge") => "application/merge-patch+json",
        Some("strategic") => "application/strategic-merge-patch+json",
        Some("apply") => "application/apply-patch+yaml",
        Some(other) => bail!("{other} is no patch"),
    };
    let body: Value = serde_json::from_str(&body.to_string().replace("{ns}", namespace))?;
    Ok(Ask::with_body(method, path, content_type, &body))
}

/// Waits until the object that a step made has a condition.
async fn wait(sender: &Sender, ask: &Ask, step: &Step, condition: &str) -> Result<()> {
    let collection = ask.path.split('?').next().unwrap_or_default();
    let name = step.body.as_ref().map(|body| &body["metadata"]["name"]);
    let name = name.and_then(Value::as_str).context("a name to wait for")?;
    for _ in 0..WAITS {
        let found = sender
            .send(None, &Ask::plain("GET", &format!("{collection}/{name}")))
            .await?;
        let found: Value = serde_json::from_slice(&found.body).unwrap_or_default();
        let conditions = found["status"]["conditions"].as_array().cloned();
        let is = |own: &Value| own["type"] == condition && own["status"] == "True";
        if conditions.unwrap_or_default().iter().any(is) {
            // Upstream serves a definition a moment after it says so.
            sender.runtime.sleep(Duration::from_secs(1)).await;
            return Ok(());
        }
        sender.runtime.sleep(WAIT).await;
    }
    bail!("{name} is not {condition}")
}

fn summary(answer: &Answer, namespace: &str, revision: &mut String) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let code = answer.status.as_u16();
    if !answer.status.is_success() {
        let message = body["message"].as_str().unwrap_or_default();
        return json!({"code": code, "message": message.replace(namespace, "{ns}")}).to_string();
    }
    let meta = &body["metadata"];
    let own = meta["resourceVersion"].as_str().unwrap_or_default();
    let written = own != revision.as_str();
    own.clone_into(revision);
    let mut owners: Vec<String> = meta["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(entry)
        .collect();
    owners.sort();
    json!({"code": code, "written": written, "owners": owners}).to_string()
}

/// `manager operation apiVersion/subresource timed fields`.
fn entry(entry: &Value) -> String {
    let text = |name: &str| entry[name].as_str().unwrap_or_default();
    format!(
        "{} {} {}/{}{} {}",
        text("manager"),
        text("operation"),
        text("apiVersion"),
        text("subresource"),
        if entry["time"].is_null() { " untimed" } else { "" },
        entry["fieldsV1"]
    )
}
