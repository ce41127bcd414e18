//! The first workload: three replicas behind a Service (`manifests/first-workload.yaml`), requested over the service's address from the
//! node, and by its name from a pod.

use super::{Look, read, say, wait};
use anyhow::Context;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Propagation};
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MANIFEST: &str = include_str!("../../../../manifests/first-workload.yaml");
const NAMESPACE: &str = "default";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/hello";
const SERVICE: &str = "/api/v1/namespaces/default/services/hello";
const JOB: &str = "/apis/batch/v1/namespaces/default/jobs/ask";
const PODS_OF_JOB: &str = "/api/v1/namespaces/default/pods?labelSelector=job-name%3Dask";
/// Longest time for an answer of the workload, and the longest answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 4_096;

pub(super) async fn run(client: &Client) -> anyhow::Result<()> {
    say("==> running a Deployment with a Service")?;
    for document in documents()? {
        create(client, &document).await?;
    }
    let runtime = client.runtime();
    wait(runtime, "its pods to be ready", || replicas_are_ready(client)).await?;
    let service = read(client, SERVICE).await.map_err(failure)?;
    let address: Ipv4Addr = service["spec"]["clusterIP"]
        .as_str()
        .unwrap_or_default()
        .parse()
        .context("the service has no address")?;
    let target = SocketAddr::from((address, 80));
    let what = format!("an answer at http://{address}");
    let answer = wait(runtime, &what, || async move {
        let answered = runtime.timeout(ANSWER_TIMEOUT, fetch(target)).await;
        let silent = |problem: &dyn std::fmt::Display| Look::NotYet(problem.to_string());
        answered
            .map_err(|_| silent(&"no answer"))?
            .map_err(|error| silent(&error))
    });
    say(&format!("    {}", answer.await?))?;
    say(&format!("    {}", ask_from_a_pod(client).await?))
}

/// Asks by name, from a pod of a Job, which is removed afterwards.
async fn ask_from_a_pod(client: &Client) -> anyhow::Result<String> {
    let runtime = client.runtime();
    // One of a run that was interrupted.
    if remove_question(client).await? {
        wait(runtime, "an earlier question to be gone", || {
            question_is_gone(client)
        })
        .await?;
    }
    create(client, &question()).await?;
    let what = "an answer at http://hello.default.svc.cluster.local, requested from a pod";
    wait(runtime, what, || async {
        let job = read(client, JOB).await?;
        let is_done = job["status"]["succeeded"] == 1;
        is_done
            .then_some(())
            .ok_or_else(|| Look::NotYet(format!("the Job's status is {}", job["status"])))
    })
    .await?;
    let pods = read(client, PODS_OF_JOB).await.map_err(failure)?;
    let pods = pods["items"].as_array().into_iter().flatten();
    let mut succeeded = pods.filter(|pod| pod["status"]["phase"] == "Succeeded");
    let name = succeeded
        .next()
        .and_then(|pod| pod["metadata"]["name"].as_str())
        .context("the Job has no pod")?;
    let path = format!("/api/v1/namespaces/default/pods/{name}/log");
    // A node that has just joined is Ready before its serving certificate is signed.
    let log = wait(runtime, "the pod's log", || async {
        let log = client.get_path(&path, &[]).await;
        log.map_err(|error| Look::NotYet(error.chain()))
    });
    let answer = String::from_utf8_lossy(&log.await?).trim().to_owned();
    remove_question(client).await?;
    Ok(answer)
}

/// Removes the Job and its pod; reports whether it was there.
async fn remove_question(client: &Client) -> anyhow::Result<bool> {
    let job = resource("batch", "v1", "Job");
    let options = DeleteOptions {
        propagation: Some(Propagation::Background),
        ..DeleteOptions::default()
    };
    match client
        .delete(&job, &ObjectKey::new(NAMESPACE, "ask"), &options)
        .await
    {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error).context("removing the question"),
    }
}

async fn question_is_gone(client: &Client) -> Result<(), Look> {
    let gone = |error: ClientError| error.is_not_found();
    let is_gone = client.get_path(JOB, &[]).await.is_err_and(gone);
    is_gone
        .then_some(())
        .ok_or_else(|| Look::NotYet("it is there".to_owned()))
}

fn question() -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "ask"},
        "spec": {"backoffLimit": 3, "template": {"spec": {"restartPolicy": "Never", "containers": [{
            "name": "ask",
            "image": node_kubelet::images::base::HELLO_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "args": ["ask", "http://hello.default.svc.cluster.local/"],
        }]}}},
    })
}

/// The objects of the manifest.
fn documents() -> anyhow::Result<Vec<Value>> {
    let documents = MANIFEST.split("\n---\n").map(|document| {
        let json = machinery_schema::yaml::yaml_to_json(document.as_bytes())?;
        Ok(serde_json::from_str(&json)?)
    });
    documents.collect()
}

/// Creates an object, or leaves the one that is there: its user may have changed it.
async fn create(client: &Client, object: &Value) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let kind = text(&object["kind"]);
    match client
        .create(&resource(group, version, &kind), NAMESPACE, object)
        .await
    {
        Err(error) if !error.is_already_exists() => Err(error).with_context(|| format!("creating a {kind}")),
        _ => Ok(()),
    }
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource {
        group: Cow::Owned(group.to_owned()),
        version: Cow::Owned(version.to_owned()),
        plural: Cow::Owned(format!("{}s", kind.to_lowercase())),
        kind: Cow::Owned(kind.to_owned()),
        namespaced: true,
    }
}

async fn replicas_are_ready(client: &Client) -> Result<(), Look> {
    let deployment = read(client, DEPLOYMENT).await?;
    let (wanted, ready) = (
        &deployment["spec"]["replicas"],
        &deployment["status"]["readyReplicas"],
    );
    let count = |value: &Value| value.as_i64().unwrap_or_default();
    match count(wanted) > 0 && count(ready) >= count(wanted) {
        true => Ok(()),
        false => Err(Look::NotYet(format!(
            "{} of {} are ready, see `kubectl describe pods -l app=hello`",
            count(ready),
            count(wanted)
        ))),
    }
}

/// The body of the workload's answer.
async fn fetch(target: SocketAddr) -> std::io::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(target).await?;
    let request = format!("GET / HTTP/1.1\r\nhost: {target}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    let text = String::from_utf8_lossy(&answer);
    match text.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.trim().to_owned()),
        _ => Err(std::io::Error::other(format!(
            "the answer begins {:?}",
            text.lines().next().unwrap_or_default()
        ))),
    }
}

fn failure(look: Look) -> anyhow::Error {
    match look {
        Look::NotYet(problem) => anyhow::anyhow!(problem),
        Look::Failed(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_workload_has_an_image_that_no_registry_is_asked_for() {
        let documents = documents().unwrap();
        let kinds: Vec<&str> = documents
            .iter()
            .filter_map(|document| document["kind"].as_str())
            .collect();
        assert_eq!(kinds, ["Deployment", "Service"]);
        let container = &documents[0]["spec"]["template"]["spec"]["containers"][0];
        for container in [
            container,
            &question()["spec"]["template"]["spec"]["containers"][0],
        ] {
            assert_eq!(container["image"], node_kubelet::images::base::HELLO_IMAGE);
            assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        }
    }
}
