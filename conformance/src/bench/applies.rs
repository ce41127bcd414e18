//! Server-side apply of a typical Deployment and ConfigMap, as a client that applies what it has again and again: most of it
//! is there already, now and then a field changes.

use super::load;
use super::scenarios::{Bench, namespace};
use anyhow::Result;
use std::sync::Arc;

const NAMESPACE: &str = "bench-applies";
/// Objects of each kind, more than there are clients: two seldom apply one object at a time.
const OBJECTS: usize = 256;
const CLIENTS: usize = 16;

/// A value of an applied object, by the number of the apply.
type Value = fn(usize) -> usize;

const WORKS: [(&str, Value); 2] = [("unchanged", |_| 0), ("changed", |number| number + 1)];

/// A kind of which objects are applied.
#[derive(Debug, Clone, Copy)]
struct Applied {
    kind: &'static str,
    /// Folder of a namespace's objects.
    collection: fn(&str) -> String,
    /// An object by its number, with a value that makes it another.
    object: fn(usize, usize) -> String,
}

const APPLIED: [Applied; 2] = [
    Applied {
        kind: "Deployment",
        collection: |namespace| format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
        object: deployment,
    },
    Applied {
        kind: "ConfigMap",
        collection: |namespace| format!("/api/v1/namespaces/{namespace}/configmaps"),
        object: config_map,
    },
];

impl Applied {
    /// Applies `value(number)` to the objects in turn.
    fn operation(self, value: Value) -> load::Operation {
        let collection = (self.collection)(NAMESPACE);
        Arc::new(move |client, number| {
            let path = format!("{collection}/applied-{}?fieldManager=bench", number % OBJECTS);
            Box::pin(async move {
                let body = (self.object)(number % OBJECTS, value(number));
                client.apply(&path, body).await.map(drop)
            })
        })
    }
}

impl Bench {
    /// Applies objects that are as they are applied, then with a field changed each time.
    pub(super) async fn applies(&mut self) -> Result<()> {
        namespace(&self.target, NAMESPACE).await?;
        for applied in APPLIED {
            self.create_applied(applied).await?;
            for (how, value) in WORKS {
                let (count, operation) = (self.sizes.applies, applied.operation(value));
                let cost = load::run(&self.target, &self.server, CLIENTS, count, operation).await?;
                let work = format!("apply a {}, {how}, {CLIENTS} clients", applied.kind);
                self.add_cost(&work, &cost);
            }
        }
        Ok(())
    }

    async fn create_applied(&self, applied: Applied) -> Result<()> {
        let create = applied.operation(|_| 0);
        load::run(&self.target, &self.server, CLIENTS, OBJECTS, create).await?;
        Ok(())
    }
}

/// A Deployment as charts have them, without replicas: nothing comes of it where controllers run.
fn deployment(number: usize, value: usize) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"applied-{number}","labels":{{"app.kubernetes.io/name":"bench","app.kubernetes.io/instance":"bench-{number}","app.kubernetes.io/version":"1.2.3"}}}},"spec":{{"replicas":0,"revisionHistoryLimit":3,"selector":{{"matchLabels":{{"app.kubernetes.io/instance":"bench-{number}"}}}},"strategy":{{"type":"RollingUpdate","rollingUpdate":{{"maxSurge":"25%","maxUnavailable":0}}}},"template":{{"metadata":{{"labels":{{"app.kubernetes.io/name":"bench","app.kubernetes.io/instance":"bench-{number}"}},"annotations":{{"prometheus.io/scrape":"true","prometheus.io/port":"8080"}}}},"spec":{{"serviceAccountName":"default","securityContext":{{"runAsNonRoot":true,"runAsUser":1000}},"containers":[{{"name":"main","image":"registry.example/bench/main:v1.2.{value}","args":["--listen=:8080","--log-level=info"],"ports":[{{"name":"http","containerPort":8080,"protocol":"TCP"}}],"env":[{{"name":"POD_NAME","valueFrom":{{"fieldRef":{{"fieldPath":"metadata.name"}}}}}},{{"name":"MODE","value":"production"}}],"resources":{{"requests":{{"cpu":"100m","memory":"128Mi"}},"limits":{{"memory":"256Mi"}}}},"livenessProbe":{{"httpGet":{{"path":"/live","port":"http"}}}},"readinessProbe":{{"httpGet":{{"path":"/ready","port":"http"}},"periodSeconds":5}},"volumeMounts":[{{"name":"config","mountPath":"/etc/bench"}}]}}],"volumes":[{{"name":"config","configMap":{{"name":"applied-{number}"}}}}]}}}}}}}}"#
    )
}

/// A ConfigMap of about a kilobyte.
fn config_map(number: usize, value: usize) -> String {
    let line = "listen = 0.0.0.0:8080\\nlog_level = info\\n".repeat(10);
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"applied-{number}","labels":{{"app.kubernetes.io/name":"bench"}}}},"data":{{"mode":"production","revision":"{value}","bench.conf":"{line}","features":"a,b,c"}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_schema::{Strictness, decode_json};

    /// An apply that changes nothing must not be measured as one that does.
    #[test]
    fn applied_objects_are_their_kinds_and_differ_by_their_value_alone() {
        for (applied, group) in APPLIED.iter().zip(["apps", ""]) {
            let (schema, ty) = machinery_api::schema_for(group, "v1", applied.kind).unwrap();
            let object = |number, value| (applied.object)(number, value);
            for number in [0, OBJECTS] {
                let text = object(number, 0);
                let decoded = decode_json(schema, ty, text.as_bytes(), Strictness::Report).unwrap();
                assert_eq!(decoded.strict_errors, [""; 0], "{}", applied.kind);
                let name = decoded
                    .tree
                    .root()
                    .get("metadata")
                    .unwrap()
                    .str("name")
                    .to_owned();
                assert_eq!(name, format!("applied-{number}"));
            }
            assert_eq!(object(3, 0), object(3, 0));
            assert_ne!(object(3, 0), object(3, 1));
            assert_eq!(object(3, 7).replace('7', "8"), object(3, 8));
        }
    }
}
