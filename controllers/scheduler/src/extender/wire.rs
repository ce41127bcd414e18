//! JSON of questions and answers. Names of members are upstream's, which Go reads whatever their case is.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The members of an object by name in lower case; of several alike the last counts.
struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Members<'a> {
    fn read(json: &'a [u8]) -> Result<Self, serde_json::Error> {
        let members: Option<BTreeMap<String, &'a RawValue>> = serde_json::from_slice(json)?;
        let members = members.unwrap_or_default().into_iter();
        Ok(Self(
            members
                .map(|(name, value)| (name.to_ascii_lowercase(), value))
                .collect(),
        ))
    }

    /// A member; what is absent or null is `None`.
    fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, serde_json::Error> {
        let value = self
            .0
            .get(name)
            .map(|value| serde_json::from_str::<Option<T>>(value.get()));
        Ok(value.transpose()?.flatten())
    }

    /// The members' own members, by their names as they are.
    fn each(&self, name: &str) -> Result<Vec<(String, &'a RawValue)>, serde_json::Error> {
        let Some(value) = self.0.get(name) else {
            return Ok(Vec::new());
        };
        let all: Option<BTreeMap<String, &'a RawValue>> = serde_json::from_str(value.get())?;
        Ok(all.unwrap_or_default().into_iter().collect())
    }

    /// The items of a list.
    fn items(&self, name: &str) -> Result<Vec<&'a RawValue>, serde_json::Error> {
        let Some(value) = self.0.get(name) else {
            return Ok(Vec::new());
        };
        let all: Option<Vec<&'a RawValue>> = serde_json::from_str(value.get())?;
        Ok(all.unwrap_or_default())
    }
}

/// Answer to the filter verb.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FilterResult {
    /// Names of `Nodes`.
    pub(super) nodes: Option<Vec<Box<str>>>,
    pub(super) node_names: Option<Vec<Box<str>>>,
    pub(super) failed: BTreeMap<Box<str>, String>,
    pub(super) failed_and_unresolvable: BTreeMap<Box<str>, String>,
    pub(super) error: String,
}

#[derive(Deserialize)]
struct NodeList {
    #[serde(default)]
    items: Option<Vec<NodeItem>>,
}

#[derive(Deserialize)]
struct NodeItem {
    metadata: NodeMetadata,
}

#[derive(Deserialize)]
struct NodeMetadata {
    name: Box<str>,
}

impl FilterResult {
    pub(super) fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        let members = Members::read(json)?;
        let nodes: Option<NodeList> = members.get("nodes")?;
        let names = |list: NodeList| {
            let items = list.items.unwrap_or_default().into_iter();
            items.map(|own| own.metadata.name).collect()
        };
        Ok(Self {
            nodes: nodes.map(names),
            node_names: members.get("nodenames")?,
            failed: members.get("failednodes")?.unwrap_or_default(),
            failed_and_unresolvable: members.get("failedandunresolvablenodes")?.unwrap_or_default(),
            error: members.get("error")?.unwrap_or_default(),
        })
    }
}

/// Answer to the prioritize verb: nodes and what each is worth.
pub(super) fn priorities(json: &[u8]) -> Result<Vec<(Box<str>, i64)>, serde_json::Error> {
    let items: Option<Vec<&RawValue>> = serde_json::from_slice(json)?;
    let read = |item: &RawValue| {
        let members = Members::read(item.get().as_bytes())?;
        Ok((
            members.get("host")?.unwrap_or_default(),
            members.get("score")?.unwrap_or_default(),
        ))
    };
    items.unwrap_or_default().into_iter().map(read).collect()
}

/// Answer to the bind verb: what went wrong, empty where nothing did.
pub(super) fn binding_error(json: &[u8]) -> Result<String, serde_json::Error> {
    Ok(Members::read(json)?.get("error")?.unwrap_or_default())
}

/// Victims on a node by uid, `None` for a null; and budgets that their going breaks.
pub(super) type MetaVictims = (Vec<Box<str>>, i64);

/// Answer to the preempt verb: victims by node.
pub(super) fn meta_victims(json: &[u8]) -> Result<BTreeMap<Box<str>, MetaVictims>, serde_json::Error> {
    let members = Members::read(json)?;
    let mut all = BTreeMap::new();
    for (node, victims) in members.each("nodenametometavictims")? {
        let victims = Members::read(victims.get().as_bytes())?;
        let mut uids = Vec::new();
        for pod in victims.items("pods")? {
            let pod = Members::read(pod.get().as_bytes())?;
            uids.push(pod.get("uid")?.unwrap_or_default());
        }
        let violations = victims.get("numpdbviolations")?.unwrap_or_default();
        all.insert(node.into(), (uids, violations));
    }
    Ok(all)
}

/// `{"Pod": …, "Nodes": …, "NodeNames": …}`, where each is JSON already.
pub(super) fn arguments(pod: &[u8], nodes: Option<&[&[u8]]>, names: Option<&[Box<str>]>) -> Vec<u8> {
    let room = pod.len() + nodes.map_or(0, |own| own.iter().map(|one| one.len() + 1).sum());
    let mut out = Vec::with_capacity(room + 128);
    out.extend_from_slice(b"{\"Pod\":");
    out.extend_from_slice(pod);
    out.extend_from_slice(b",\"Nodes\":");
    match nodes {
        None => out.extend_from_slice(b"null"),
        Some(nodes) => {
            out.extend_from_slice(b"{\"metadata\":{},\"items\":[");
            out.extend_from_slice(&nodes.join(&b","[..]));
            out.extend_from_slice(b"]}");
        }
    }
    out.extend_from_slice(b",\"NodeNames\":");
    out.extend(serde_json::to_vec(&names).unwrap_or_default());
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_to_filter_is_read_whatever_the_case_of_its_names() {
        let json = br#"{"nodenames": ["a"], "NODES": {"items": [{"metadata": {"name": "b"}}]}, "failedNodes": {"c": "full"},
            "FailedAndUnresolvableNodes": null, "other": [[]], "Error": "no"}"#;
        let read = FilterResult::read(json).unwrap();
        assert_eq!(read.node_names, Some(vec!["a".into()]));
        assert_eq!(read.nodes, Some(vec!["b".into()]));
        assert_eq!(read.failed, BTreeMap::from([("c".into(), "full".to_owned())]));
        assert_eq!(read.error, "no");
        assert_eq!(FilterResult::read(b"null").unwrap(), FilterResult::default());
        assert!(FilterResult::read(b"[]").is_err());
    }

    #[test]
    fn answers_of_the_other_verbs_are_read() {
        let scores = priorities(br#"[{"Host": "a", "Score": 3}, {"host": "b"}]"#).unwrap();
        assert_eq!(scores, [("a".into(), 3), ("b".into(), 0)]);
        assert_eq!(binding_error(b"{}").unwrap(), "");
        let victims = br#"{"NodeNameToMetaVictims": {"N": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}, "m": null}}"#;
        let read = meta_victims(victims).unwrap();
        assert_eq!(read[&Box::<str>::from("N")], (vec!["u".into()], 1));
        assert_eq!(read[&Box::<str>::from("m")], (Vec::new(), 0));
    }

    #[test]
    fn arguments_are_one_document() {
        let nodes: [&[u8]; 2] = [b"{}", b"[1]"];
        let read = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert_eq!(
            read(arguments(b"{}", Some(&nodes), None)),
            r#"{"Pod":{},"Nodes":{"metadata":{},"items":[{},[1]]},"NodeNames":null}"#
        );
        let names = ["a".into()];
        assert_eq!(
            read(arguments(b"{}", None, Some(&names))),
            r#"{"Pod":{},"Nodes":null,"NodeNames":["a"]}"#
        );
    }
}
