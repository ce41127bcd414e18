//! One life of an object of every row that stores some, with the smallest object that is valid
//! (`registry/testdata/<group>/<kind>.yaml`; statuses in `registry/testdata/status.json`). A kind joins by existing: a
//! row without an object, or with a status and none to write, fails by its name.
//!
//! Requests go through the handlers as bytes, the clock is the simulation's.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_registry::{ResourceRow, Verb};
use common::{Answer, Api, collection, sample, testdata};
use http::Method;
use machinery_runtime::Simulation;
use machinery_schema::yaml_to_json;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// A statement that does not hold.
type Wrong = String;

impl Api {
    async fn revision(&self) -> u64 {
        self.registry.stored().current_revision().await.unwrap().0
    }

    async fn get(&self, path: &str) -> Result<Value, Wrong> {
        self.ask(Method::GET, path, (JSON, JSON), "").await.json(200)
    }

    async fn patch(&self, path: &str, form: &str, body: &Value) -> Result<Value, Wrong> {
        let answer = self
            .ask(Method::PATCH, path, (form, JSON), body.to_string())
            .await;
        answer.json(200)
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err(what()) }
}

/// A status that the row's kind can have.
fn status_of(row: &ResourceRow) -> Result<Value, Wrong> {
    let all: Value = serde_json::from_str(&testdata("status.json")?).map_err(|error| error.to_string())?;
    let name = format!("{}/{}", row.gvk.group, row.gvk.kind);
    let own = all.get(&name).cloned();
    own.ok_or_else(|| format!("registry/testdata/status.json has nothing of {name}"))
}

/// Reports whether `whole` contains everything in `part`.
fn says(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, own)| says(whole.get(key).unwrap_or(&Value::Null), own)),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| says(whole, part))
        }
        (Value::Null, part) => {
            part.as_array().is_some_and(Vec::is_empty) || part.as_object().is_some_and(|own| own.is_empty())
        }
        _ => whole == part,
    }
}

struct Life<'a> {
    api: &'a Api,
    row: &'a ResourceRow,
    yaml: String,
    collection: String,
    object: String,
}

impl<'a> Life<'a> {
    /// The address follows from the row; the name from the object.
    async fn of(api: &'a Api, row: &'a ResourceRow) -> Result<Self, Wrong> {
        let yaml = sample(row)?;
        let collection = collection(row);
        let path = format!("{collection}?dryRun=All");
        let tried = api.ask(Method::POST, &path, (YAML, JSON), yaml.clone());
        let tried = tried.await.json(201)?;
        let name = tried["metadata"]["name"].as_str().ok_or("it has no name")?;
        let object = format!("{collection}/{name}");
        Ok(Self {
            api,
            row,
            yaml,
            collection,
            object,
        })
    }

    async fn tell(&self) -> Result<(), Wrong> {
        let before = self.api.revision().await;
        self.is_created()
            .await
            .map_err(|wrong| format!("create: {wrong}"))?;
        self.is_listed().await.map_err(|wrong| format!("list: {wrong}"))?;
        self.is_replaced()
            .await
            .map_err(|wrong| format!("update: {wrong}"))?;
        self.is_patched()
            .await
            .map_err(|wrong| format!("patch: {wrong}"))?;
        self.is_applied()
            .await
            .map_err(|wrong| format!("apply: {wrong}"))?;
        self.has_forms()
            .await
            .map_err(|wrong| format!("forms: {wrong}"))?;
        if self.row.has_status() {
            self.has_a_status()
                .await
                .map_err(|wrong| format!("status: {wrong}"))?;
        }
        self.is_held()
            .await
            .map_err(|wrong| format!("finalizer: {wrong}"))?;
        self.was_watched(before)
            .await
            .map_err(|wrong| format!("watch: {wrong}"))?;
        if self.row.verbs.has(Verb::DeleteCollection) {
            self.goes_with_all()
                .await
                .map_err(|wrong| format!("deletecollection: {wrong}"))?;
        }
        Ok(())
    }

    fn name(&self) -> &str {
        self.object.rsplit('/').next().unwrap_or_default()
    }

    async fn live(&self) -> Result<Value, Wrong> {
        self.api.get(&self.object).await
    }

    /// Runs something that is to write nothing.
    async fn writes_nothing(&self, what: &str, doing: impl Future<Output = Answer>) -> Result<(), Wrong> {
        let before = self.api.revision().await;
        doing
            .await
            .json(200)
            .map_err(|wrong| format!("{what}: {wrong}"))?;
        let after = self.api.revision().await;
        ensure(before == after, || format!("{what} was written"))
    }

    async fn create(&self, object: &Value) -> Answer {
        self.api
            .ask(Method::POST, &self.collection, (JSON, JSON), object.to_string())
            .await
    }

    async fn put(&self, object: &Value) -> Answer {
        self.api
            .ask(Method::PUT, &self.object, (JSON, JSON), object.to_string())
            .await
    }

    /// The object with a label by which it is found.
    fn fresh(&self) -> Result<Value, Wrong> {
        let json = yaml_to_json(self.yaml.as_bytes()).map_err(|error| error.to_string())?;
        let mut object: Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        object["metadata"]["labels"]["suite"] = json!("yes");
        Ok(object)
    }

    async fn is_created(&self) -> Result<(), Wrong> {
        let object = self.fresh()?;
        let before = self.api.revision().await;
        let path = format!("{}?dryRun=All", self.collection);
        let tried = self
            .api
            .ask(Method::POST, &path, (JSON, JSON), object.to_string());
        tried.await.json(201)?;
        ensure(self.api.revision().await == before, || {
            "a dry run was written".to_owned()
        })?;
        let missing = self.api.ask(Method::GET, &self.object, (JSON, JSON), "").await;
        missing.json(404)?;
        let made = self.create(&object).await.json(201)?;
        let given = ["uid", "creationTimestamp", "resourceVersion"];
        let lacking = given
            .into_iter()
            .find(|field| !made["metadata"][field].is_string());
        ensure(lacking.is_none(), || format!("no {lacking:?}: {made}"))?;
        ensure(
            made["kind"] == self.row.gvk.kind && made["apiVersion"] == self.row.gvk.api_version(),
            || format!("of another kind: {made}"),
        )?;
        let again = self.create(&object).await.json(409)?;
        ensure(again["reason"] == "AlreadyExists", || again.to_string())?;
        let live = self.live().await?;
        ensure(live == made, || format!("{live} was read, {made} was answered"))
    }

    async fn is_listed(&self) -> Result<(), Wrong> {
        let mut own = self.live().await?;
        let name = own["metadata"]["name"].as_str().unwrap().to_owned();
        for (query, found) in [
            ("labelSelector=suite%3Dyes".to_owned(), true),
            ("labelSelector=suite%3Dno".to_owned(), false),
            (format!("fieldSelector=metadata.name%3D{name}&limit=1"), true),
            ("fieldSelector=metadata.name%3Dnobody".to_owned(), false),
        ] {
            let list = self.api.get(&format!("{}?{query}", self.collection)).await?;
            ensure(list["kind"] == self.row.list_kind, || {
                format!("kind {}", list["kind"])
            })?;
            let expected = if found {
                own.as_object_mut()
                    .unwrap()
                    .retain(|key, _| key != "kind" && key != "apiVersion");
                json!([own])
            } else {
                json!([])
            };
            ensure(list["items"] == expected, || {
                format!("{query}: {}", list["items"])
            })?;
        }
        let all = format!("{}?labelSelector=suite%3Dyes", self.collection);
        let table = self
            .api
            .ask(Method::GET, &all, (JSON, TABLE), "")
            .await
            .json(200)?;
        let (heads, rows) = (&table["columnDefinitions"], &table["rows"]);
        let (heads, rows) = (heads.as_array().unwrap(), rows.as_array().unwrap());
        let widths: Vec<usize> = rows
            .iter()
            .map(|row| row["cells"].as_array().unwrap().len())
            .collect();
        ensure(table["kind"] == "Table" && widths == [heads.len()], || {
            table.to_string()
        })?;
        if let Some(at) = heads.iter().position(|head| head["name"] == "Name") {
            ensure(rows[0]["cells"][at] == name, || table.to_string())?;
        }
        let heads = self
            .api
            .ask(Method::GET, &all, (JSON, METADATA), "")
            .await
            .json(200)?;
        ensure(
            heads["kind"] == "PartialObjectMetadataList" && heads["items"][0]["metadata"] == own["metadata"],
            || heads.to_string(),
        )
    }

    async fn is_replaced(&self) -> Result<(), Wrong> {
        let live = self.live().await?;
        self.writes_nothing("a PUT of what is there", self.put(&live))
            .await?;
        let mut changed = live.clone();
        changed["metadata"]["annotations"]["suite"] = json!("changed");
        let path = format!("{}?dryRun=All", self.object);
        let tried = self
            .api
            .ask(Method::PUT, &path, (JSON, JSON), changed.to_string());
        self.writes_nothing("a dry run", tried).await?;
        let written = self.put(&changed).await.json(200)?;
        ensure(
            written["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"]
                && written["metadata"]["annotations"]["suite"] == "changed",
            || format!("it was not changed: {written}"),
        )?;
        let stale = self.put(&live).await.json(409)?;
        ensure(stale["reason"] == "Conflict", || stale.to_string())
    }

    async fn is_patched(&self) -> Result<(), Wrong> {
        let annotate = |value: &str| json!({"metadata": {"annotations": {"suite": value}}});
        let replace = json!([{"op": "replace", "path": "/metadata/annotations/suite", "value": "json"}]);
        for (form, body, value) in [
            (MERGE, annotate("merge"), "merge"),
            (JSON_PATCH, replace, "json"),
            (STRATEGIC, annotate("strategic"), "strategic"),
        ] {
            let path = format!("{}?dryRun=All", self.object);
            let tried = self.api.ask(Method::PATCH, &path, (form, JSON), body.to_string());
            self.writes_nothing("a dry run", tried).await?;
            let patched = self.api.patch(&self.object, form, &body).await;
            let patched = patched.map_err(|wrong| format!("{form}: {wrong}"))?;
            ensure(patched["metadata"]["annotations"]["suite"] == value, || {
                format!("{form}: {patched}")
            })?;
            let again = self
                .api
                .ask(Method::PATCH, &self.object, (form, JSON), body.to_string());
            self.writes_nothing(form, again).await?;
            let mut stale = annotate("stale");
            stale["metadata"]["resourceVersion"] = json!("1");
            if form != JSON_PATCH {
                let refused = self
                    .api
                    .ask(Method::PATCH, &self.object, (form, JSON), stale.to_string())
                    .await;
                refused.json(409)?;
            }
        }
        Ok(())
    }

    async fn is_applied(&self) -> Result<(), Wrong> {
        let mut part = json!({"apiVersion": self.row.gvk.api_version(), "kind": self.row.gvk.kind});
        part["metadata"] = json!({"name": self.name(), "annotations": {"suite/applied": "yes"}});
        let path = format!("{}?fieldManager=suite", self.object);
        let applied = self.api.patch(&path, APPLY, &part).await?;
        let managers = applied["metadata"]["managedFields"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        ensure(
            managers
                .iter()
                .any(|own| own["manager"] == "suite" && own["operation"] == "Apply"),
            || format!("it is not owned: {applied}"),
        )?;
        let again = self
            .api
            .ask(Method::PATCH, &path, (APPLY, JSON), part.to_string());
        self.writes_nothing("the same again", again).await
    }

    /// An object that was read in a format can be written back in it, and is the same object.
    async fn has_forms(&self) -> Result<(), Wrong> {
        for form in [PROTOBUF, YAML, JSON] {
            let read = self.api.ask(Method::GET, &self.object, (JSON, form), "").await;
            ensure(read.code == 200, || {
                format!("{form}: {}", String::from_utf8_lossy(&read.body))
            })?;
            let back = self.api.ask(Method::PUT, &self.object, (form, JSON), read.body);
            self.writes_nothing(form, back).await?;
        }
        Ok(())
    }

    /// The status is written under its own address and nowhere else, and nothing else is written there.
    async fn has_a_status(&self) -> Result<(), Wrong> {
        let status = status_of(self.row)?;
        let (path, before) = (format!("{}/status", self.object), self.live().await?);
        let written = self.api.patch(&path, MERGE, &json!({"status": status})).await?;
        ensure(says(&written["status"], &status), || {
            format!("{} was written", written["status"])
        })?;
        ensure(written["spec"] == before["spec"], || {
            format!("the spec is {}", written["spec"])
        })?;
        let main = self.live().await?;
        ensure(main == written && self.api.get(&path).await? == main, || {
            "it is read otherwise".to_owned()
        })?;
        let mut other = main.clone();
        other.as_object_mut().unwrap().remove("status");
        self.writes_nothing("a PUT without the status", self.put(&other))
            .await?;
        if main.get("spec").is_some() {
            let mut other = main.clone();
            other.as_object_mut().unwrap().remove("spec");
            let put = self.api.ask(Method::PUT, &path, (JSON, JSON), other.to_string());
            self.writes_nothing("a PUT of the status without the spec", put)
                .await?;
        }
        Ok(())
    }

    async fn delete(&self) -> Answer {
        let path = format!("{}?gracePeriodSeconds=0", self.object);
        self.api.ask(Method::DELETE, &path, (JSON, JSON), "").await
    }

    /// A finalizer holds the object until it is taken away.
    async fn is_held(&self) -> Result<(), Wrong> {
        let hold = json!({"metadata": {"finalizers": ["example.com/suite"]}});
        self.api.patch(&self.object, MERGE, &hold).await?;
        let path = format!("{}?gracePeriodSeconds=0&dryRun=All", self.object);
        self.writes_nothing("a dry run", self.api.ask(Method::DELETE, &path, (JSON, JSON), ""))
            .await?;
        self.delete().await.json(200)?;
        let held = self.live().await?;
        ensure(held["metadata"]["deletionTimestamp"].is_string(), || {
            format!("it is not going: {held}")
        })?;
        self.let_go().await?;
        let gone = self.api.ask(Method::GET, &self.object, (JSON, JSON), "").await;
        gone.json(404).map(drop)
    }

    async fn let_go(&self) -> Result<(), Wrong> {
        let free = json!({"metadata": {"finalizers": null}});
        let mut released = self.api.patch(&self.object, MERGE, &free).await?;
        if self.row.subresource("finalize").is_some() {
            released["spec"] = json!({});
            let path = format!("{}/finalize", self.object);
            let finalized = self
                .api
                .ask(Method::PUT, &path, (JSON, JSON), released.to_string())
                .await;
            finalized.json(200)?;
        }
        Ok(())
    }

    /// A watch from before shows the whole life.
    async fn was_watched(&self, since: u64) -> Result<(), Wrong> {
        let path = format!(
            "{}?watch=true&resourceVersion={since}&timeoutSeconds=1&fieldSelector=metadata.name%3D{}",
            self.collection,
            self.name()
        );
        let told = self.api.ask(Method::GET, &path, (JSON, JSON), "").await;
        let lines = String::from_utf8(told.body.to_vec()).map_err(|error| error.to_string())?;
        let events = lines.lines().map(serde_json::from_str::<Value>);
        let events: Vec<Value> = events
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        let [first, middle @ .., last] = &kinds[..] else {
            return Err(format!("{lines} was told"));
        };
        let lives = *first == "ADDED" && *last == "DELETED" && middle.iter().all(|kind| *kind == "MODIFIED");
        ensure(lives && middle.len() > 4, || format!("{kinds:?} was told"))?;
        let revision = |event: &Value| {
            event["object"]["metadata"]["resourceVersion"]
                .as_str()?
                .parse()
                .ok()
        };
        let order: Vec<Option<u64>> = events.iter().map(revision).collect();
        ensure(order.is_sorted() && order[0] > Some(since), || {
            format!("{order:?} was told after {since}")
        })
    }

    async fn goes_with_all(&self) -> Result<(), Wrong> {
        self.create(&self.fresh()?).await.json(201)?;
        for (query, left) in [
            ("labelSelector=suite%3Dno", 1),
            ("labelSelector=suite%3Dyes&dryRun=All", 1),
            (
                "labelSelector=suite%3Dyes&gracePeriodSeconds=0&propagationPolicy=Background",
                0,
            ),
        ] {
            let path = format!("{}?{query}", self.collection);
            self.api
                .ask(Method::DELETE, &path, (JSON, JSON), "")
                .await
                .json(200)?;
            let list = self
                .api
                .get(&format!("{}?labelSelector=suite%3Dyes", self.collection))
                .await?;
            // What the server itself still has to do about an object may hold it for a while.
            let stays = |own: &&Value| own["metadata"]["deletionTimestamp"].is_null();
            let found = list["items"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(stays)
                .count();
            ensure(found == left, || format!("{found} are left after {query}"))?;
        }
        Ok(())
    }
}

#[test]
fn every_row_life_cycle() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    let wrong: Vec<String> = simulation.run(async move {
        let api = Api::new(runtime).await;
        // Services take their addresses from it.
        let range = json!({"metadata": {"name": "range"}, "spec": {"cidrs": ["10.96.0.0/24"]}});
        let cidrs = "/apis/networking.k8s.io/v1/servicecidrs";
        let made = api
            .ask(Method::POST, cidrs, (JSON, JSON), range.to_string())
            .await;
        made.json(201).unwrap();
        let rows = api.registry.rows();
        let mut wrong = Vec::new();
        for row in rows.all().filter(|row| row.has_store) {
            let told = match Life::of(&api, row).await {
                Ok(life) => life.tell().await,
                Err(missing) => Err(missing),
            };
            if let Err(what) = told {
                wrong.push(format!("{} {}: {what}", row.gvk.api_version(), row.gvk.kind));
            }
        }
        wrong
    });
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}
