//! Draining a node as `kubectl drain --ignore-daemonsets` does, in its words.

use super::nodes;
use anyhow::{Context, bail};
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Patch};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::time::Duration;

const MIRROR: &str = "kubernetes.io/config.mirror";
/// Pause before a pod is evicted again that its budget protects, kubectl's.
const EVICT_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Interval of reads of pods that end.
const LOOK_AFTER: Duration = Duration::from_secs(1);
const TOO_MANY_REQUESTS: i32 = 429;

/// A node to drain, and the way.
#[derive(Debug)]
pub(super) struct Drain {
    pub(super) client: Client,
    pub(super) node: String,
    pub(super) overrides: Overrides,
    pub(super) evict: bool,
    pub(super) grace_period_seconds: Option<i64>,
    pub(super) timeout: Option<Duration>,
}

/// Pods that go although something of them is lost.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Overrides {
    pub(super) force: bool,
    pub(super) delete_emptydir_data: bool,
}

/// A pod that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeavingPod {
    pub(super) namespace: String,
    pub(super) name: String,
    uid: String,
}

/// Decision about one pod.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
    NoController,
    LocalStorage,
}

impl Drain {
    /// Lists the pods that go, or refuses as kubectl does.
    pub(super) async fn plan(&self) -> anyhow::Result<Vec<LeavingPod>> {
        let query = [("fieldSelector", format!("spec.nodeName={}", self.node))];
        let list: Value = self.client.list_as(&pods(), "", &query).await?;
        let all: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
        let overrides = self.overrides;
        let of = |wanted: Fate| all.iter().filter(move |pod| fate(pod, overrides) == wanted);
        let names = |wanted: Fate| {
            let names: Vec<String> = of(wanted).map(|pod| full_name(&leaving(pod))).collect();
            names.join(", ")
        };
        let (alone, local) = (names(Fate::NoController), names(Fate::LocalStorage));
        let mut problems = Vec::new();
        if !alone.is_empty() {
            problems.push(format!(
                "cannot delete Pods that declare no controller (use --force to override): {alone}"
            ));
        }
        if !local.is_empty() {
            problems.push(format!(
                "cannot delete Pods with local storage (use --delete-emptydir-data to override): {local}"
            ));
        }
        if !problems.is_empty() {
            bail!("{}", problems.join("; "));
        }
        Ok(of(Fate::Goes).map(|pod| leaving(pod)).collect())
    }

    /// Cordons the node, and ends when all its pods are away, those too that came before it was cordoned.
    pub(super) async fn run(&self, runtime: &Runtime) -> anyhow::Result<()> {
        let cordon = json!({"spec": {"unschedulable": true}});
        let node = ObjectKey::new("", &self.node);
        self.client
            .patch(&nodes(), &node, "", &Patch::Merge, &cordon)
            .await
            .with_context(|| format!("cordoning node {}", self.node))?;
        let pods = self.plan().await?;
        let draining = self.drain(pods, runtime);
        match self.timeout {
            None => draining.await,
            Some(timeout) => runtime
                .timeout(timeout, draining)
                .await
                .with_context(|| format!("node {} is cordoned, but not drained in time", self.node))?,
        }
    }

    async fn drain(&self, mut pods: Vec<LeavingPod>, runtime: &Runtime) -> anyhow::Result<()> {
        let mut ending: Vec<LeavingPod> = Vec::new();
        loop {
            let mut protected = Vec::new();
            for pod in pods {
                match self.end(&pod).await {
                    Ok(()) => ending.push(pod),
                    Err(error) if error.is_not_found() => {}
                    Err(error) if self.evict && error.code() == TOO_MANY_REQUESTS => {
                        super::say(&format!("pod {} stays for now: {error}", full_name(&pod)))?;
                        protected.push(pod);
                    }
                    Err(error) => return Err(error).with_context(|| format!("pod {}", full_name(&pod))),
                }
            }
            if protected.is_empty() {
                break;
            }
            pods = protected;
            runtime.sleep(EVICT_AGAIN_AFTER).await;
        }
        for pod in &ending {
            while self.is_there(pod).await? {
                runtime.sleep(LOOK_AFTER).await;
            }
            super::say(&format!("pod {} has left", full_name(pod)))?;
        }
        Ok(())
    }

    async fn end(&self, pod: &LeavingPod) -> Result<(), ClientError> {
        let key = ObjectKey::new(&pod.namespace, &pod.name);
        if !self.evict {
            let options = DeleteOptions {
                grace_period_seconds: self.grace_period_seconds,
                ..DeleteOptions::default()
            };
            return self.client.delete(&pods(), &key, &options).await.map(drop);
        }
        let mut eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
        });
        if let Some(seconds) = self.grace_period_seconds {
            eviction["deleteOptions"] = json!({"gracePeriodSeconds": seconds});
        }
        let evicted = self
            .client
            .create_subresource(&pods(), &key, "eviction", &eviction);
        evicted.await.map(drop)
    }

    async fn is_there(&self, pod: &LeavingPod) -> anyhow::Result<bool> {
        let key = ObjectKey::new(&pod.namespace, &pod.name);
        match self.client.get_as::<Value>(&pods(), &key).await {
            Ok(found) => Ok(found["metadata"]["uid"] == pod.uid.as_str()),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error).with_context(|| format!("pod {}", full_name(pod))),
        }
    }
}

fn fate(pod: &Value, overrides: Overrides) -> Fate {
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let owners = pod["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten();
    let controller = owners.clone().find(|owner| owner["controller"] == true);
    if pod["metadata"]["annotations"].get(MIRROR).is_some()
        || controller.is_some_and(|owner| owner["kind"] == "DaemonSet") && !ended
    {
        return Fate::Stays;
    }
    let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let has_local = volumes.any(|volume| volume.get("emptyDir").is_some());
    match (
        controller.is_some() || ended || overrides.force,
        has_local && !ended,
    ) {
        (false, _) => Fate::NoController,
        (true, true) if !overrides.delete_emptydir_data => Fate::LocalStorage,
        _ => Fate::Goes,
    }
}

fn leaving(pod: &Value) -> LeavingPod {
    let text = |name: &str| pod["metadata"][name].as_str().unwrap_or_default().to_owned();
    LeavingPod {
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
    }
}

fn full_name(pod: &LeavingPod) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}

fn pods() -> ApiResource {
    ApiResource {
        group: "".into(),
        version: "v1".into(),
        plural: "pods".into(),
        kind: "Pod".into(),
        namespaced: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pod: Value, expected: [Fate; 2]) {
        let all = Overrides {
            force: true,
            delete_emptydir_data: true,
        };
        assert_eq!(
            [fate(&pod, Overrides::default()), fate(&pod, all)],
            expected,
            "{pod}"
        );
    }

    #[test]
    fn drain_decides_as_kubectl_does() {
        let owned = |kind: &str| json!({"ownerReferences": [{"kind": kind, "controller": true}]});
        let local = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
        check(json!({"metadata": owned("ReplicaSet")}), [Fate::Goes, Fate::Goes]);
        check(
            json!({"metadata": owned("DaemonSet")}),
            [Fate::Stays, Fate::Stays],
        );
        check(
            json!({"metadata": {"annotations": {MIRROR: "x"}}}),
            [Fate::Stays, Fate::Stays],
        );
        check(json!({"metadata": {}}), [Fate::NoController, Fate::Goes]);
        check(
            json!({"metadata": owned("Job"), "spec": local}),
            [Fate::LocalStorage, Fate::Goes],
        );
        check(
            json!({"metadata": {}, "spec": local, "status": {"phase": "Succeeded"}}),
            [Fate::Goes, Fate::Goes],
        );
    }
}
