//! Records of the runtime that bear one name, of which all but one are removed.
//!
//! containerd 1.6 gives a container's name back when it cannot be made, also where what was written of it cannot be
//! removed, as on a full disk. The next attempt has the same name, and from then on containerd ends at each start:
//! `failed to recover state: failed to reserve container name`. A containerd without its CRI plugin still answers.

use std::collections::{BTreeMap, BTreeSet};

use containerd_client::services::v1::containers_client::ContainersClient;
use containerd_client::services::v1::tasks_client::TasksClient;
use containerd_client::services::v1::{
    Container, DeleteContainerRequest, ListContainersRequest, ListTasksRequest,
};
use futures::future::BoxFuture;
use serde_json::Value;

use crate::client::{ANSWER_BYTES_MAX, Transport};
use crate::{CriClient, CriError, in_namespace};

/// Extensions of a record with what CRI knows of a container and of a sandbox.
const EXTENSIONS: [&str; 2] = [
    "io.cri-containerd.container.metadata",
    "io.cri-containerd.sandbox.metadata",
];

/// Removes what bears the name of another and has no process, and returns the IDs. Where none of them has a process, the
/// newest stays.
///
/// # Errors
/// The runtime does not answer.
pub fn remove(client: &CriClient) -> BoxFuture<'static, Result<Vec<String>, CriError>> {
    let channel = client.channel();
    Box::pin(async move {
        let mut containers =
            ContainersClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let request = in_namespace(ListContainersRequest::default());
        let listed = containers.list(request).await;
        let listed = listed.map_err(CriError::call("listing the runtime's records"))?;
        let surplus = surplus(listed.into_inner().containers, &with_process(channel).await?);
        for id in &surplus {
            let request = in_namespace(DeleteContainerRequest { id: id.clone() });
            let deleted = containers.delete(request).await;
            deleted.map_err(CriError::call("removing a record of the runtime"))?;
        }
        Ok(surplus)
    })
}

async fn with_process(channel: Transport) -> Result<BTreeSet<String>, CriError> {
    let mut tasks = TasksClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    let listed = tasks.list(in_namespace(ListTasksRequest::default())).await;
    let listed = listed.map_err(CriError::call("listing the runtime's processes"))?;
    let tasks = listed.into_inner().tasks.into_iter();
    Ok(tasks.map(|task| task.id).collect())
}

fn surplus(records: Vec<Container>, with_process: &BTreeSet<String>) -> Vec<String> {
    let mut named: BTreeMap<(&str, String), Vec<Container>> = BTreeMap::new();
    for record in records {
        if let Some(name) = name_of(&record) {
            named.entry(name).or_default().push(record);
        }
    }
    let made = |record: &Container| record.created_at.as_ref().map(|time| (time.seconds, time.nanos));
    let of_a_name = |mut records: Vec<Container>| {
        records.sort_by_key(|record| (with_process.contains(&record.id), made(record)));
        records.pop();
        let all = records.into_iter().map(|record| record.id);
        all.filter(|id| !with_process.contains(id)).collect::<Vec<_>>()
    };
    named.into_values().flat_map(of_a_name).collect()
}

/// Kind and name of a record; none of one that is not CRI's.
fn name_of(record: &Container) -> Option<(&'static str, String)> {
    EXTENSIONS.into_iter().find_map(|kind| {
        let value = &record.extensions.get(kind)?.value;
        let known: Value = serde_json::from_slice(value).ok()?;
        Some((kind, known["Metadata"]["Name"].as_str()?.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_types::{Any, Timestamp};

    fn record(id: &str, kind: usize, name: &str, seconds: i64) -> Container {
        let value = format!(r#"{{"Version":"v1","Metadata":{{"ID":"{id}","Name":"{name}","Config":{{}}}}}}"#);
        let extension = Any {
            type_url: "github.com/containerd/cri".into(),
            value: value.into_bytes(),
        };
        Container {
            id: id.into(),
            extensions: [(EXTENSIONS[kind].to_string(), extension)].into(),
            created_at: Some(Timestamp { seconds, nanos: 0 }),
            ..Container::default()
        }
    }

    #[test]
    fn twins_without_a_process_are_surplus_and_one_of_a_name_stays() {
        let records = vec![
            record("runs", 0, "a_0", 1),
            record("failed", 0, "a_0", 2),
            record("older", 0, "b_0", 1),
            record("newer", 0, "b_0", 2),
            record("alone", 0, "c_0", 1),
            // A sandbox and a container may have one name.
            record("sandbox", 1, "c_0", 1),
            Container {
                id: "another program's".into(),
                ..Container::default()
            },
        ];
        let with_process = BTreeSet::from(["runs".to_string()]);
        assert_eq!(surplus(records, &with_process), ["failed", "older"]);
    }

    #[test]
    fn twins_that_both_run_both_stay() {
        let records = vec![record("one", 0, "a_0", 1), record("two", 0, "a_0", 2)];
        let with_process = BTreeSet::from(["one".to_string(), "two".to_string()]);
        assert!(surplus(records, &with_process).is_empty());
    }
}
