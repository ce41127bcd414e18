//! ConversionReview: what is sent, what may come back, and the metadata that a webhook cannot change.

use crate::shared::validation::{Errors, Path, annotations, labels};
use machinery_meta::GroupVersionKind;
use machinery_schema::{Kind, Ref, Tree};
use serde_json::json;

/// A version of ConversionReview.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "apiextensions.k8s.io/v1",
            Self::V1Beta1 => "apiextensions.k8s.io/v1beta1",
        }
    }
}

/// A review under way.
pub(super) struct Review {
    pub(super) version: ReviewVersion,
    pub(super) uid: String,
    pub(super) to: GroupVersionKind,
}

impl Review {
    /// The review as JSON.
    pub(super) fn json(&self, objects: &[Tree]) -> Vec<u8> {
        let (version, uid, to) = (self.version.api_version(), json!(self.uid), self.to.api_version());
        let mut text = format!(
            r#"{{"kind":"ConversionReview","apiVersion":"{version}","request":{{"uid":{uid},"desiredAPIVersion":"{to}","objects":["#
        );
        for (at, object) in objects.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(&object.root().to_json());
        }
        text.push_str("]}}");
        text.into_bytes()
    }

    /// The objects of an answer (upstream's `getConvertedObjectsFromResponse`).
    pub(super) fn read(&self, body: &[u8]) -> Result<Vec<Tree>, String> {
        let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
        let answer = Tree::from_json(text).map_err(|error| error.to_string())?;
        let expected = self.version.api_version();
        let (kind, version) = (answer.str_at(&["kind"]), answer.str_at(&["apiVersion"]));
        if kind.is_empty() {
            return Err("Object 'Kind' is missing in the answer".to_owned());
        }
        if kind != "ConversionReview" || version != expected {
            return Err(format!(
                "expected webhook response of {expected}, Kind=ConversionReview, got {version}, Kind={kind}"
            ));
        }
        let response = answer.get("response").filter(|own| own.kind() == Kind::Map);
        let response = response.ok_or("no response provided")?;
        // In v1beta1 upstream does not check it.
        if self.version == ReviewVersion::V1 && response.str("uid") != self.uid {
            let (wanted, got) = (&self.uid, response.str("uid"));
            return Err(format!("expected response.uid={wanted:?}, got {got:?}"));
        }
        let status = response.str_at(&["result", "status"]);
        match (status, response.str_at(&["result", "message"])) {
            ("Success", _) => Ok(response.list("convertedObjects").map(Ref::to_tree).collect()),
            (status, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
            (_, message) => Err(message.chars().take(MAX_MESSAGE).collect()),
        }
    }
}

/// Characters that are taken of a webhook's message.
const MAX_MESSAGE: usize = 4096;

/// A converted object with the metadata that it had, but for labels and annotations (upstream's `validateConvertedObject` and
/// `restoreObjectMeta`).
pub(super) fn restored(mut own: Tree, before: &Tree, to: &GroupVersionKind) -> Result<Tree, String> {
    if own.root().kind() != Kind::Map {
        return Err("it is no object".to_owned());
    }
    let (expected, received) = (to.api_version(), own.str_at(&["apiVersion"]));
    if received != expected {
        return Err(format!(
            "invalid groupVersion (expected {expected}, received {received})"
        ));
    }
    let received = own.str_at(&["kind"]);
    if received != to.kind {
        return Err(format!(
            "invalid kind (expected {}, received {received})",
            to.kind
        ));
    }
    for (member, words) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let [was, is] = [before, &own].map(|object| object.str_at(&["metadata", member]));
        if was != is {
            return Err(format!("must have the same {words}: {was} != {is}"));
        }
    }
    match own.get("metadata").map(Ref::kind) {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Kind::Map) => {}
        Some(_) => return Err("invalid metadata in converted object".to_owned()),
    }
    let texts = [kept(&own, "labels")?, kept(&own, "annotations")?];
    if let Some(metadata) = before.get("metadata") {
        own.set(&["metadata".into()], metadata);
    }
    for (member, kept) in ["labels", "annotations"].into_iter().zip(texts) {
        own.remove(&["metadata", member]);
        if let Some(kept) = kept {
            own.set(&["metadata".into(), member.into()], kept.root());
        }
    }
    Ok(own)
}

/// Labels or annotations that a webhook has set.
fn kept(own: &Tree, member: &str) -> Result<Option<Tree>, String> {
    let given = own.at(&["metadata", member]).filter(|own| !own.is_null());
    let Some(given) = given else { return Ok(None) };
    if given.kind() != Kind::Map {
        return Err(format!("invalid metadata.{member} in converted object"));
    }
    if let Some((key, _)) = given.entries().find(|(_, value)| value.as_str().is_none()) {
        return Err(format!("metadata.{member}[{key}] must be a string"));
    }
    let mut errors = Errors::new();
    match member {
        "labels" => labels(&mut errors, &Path::of("metadata.labels"), Some(given)),
        _ => annotations(&mut errors, &Path::of("metadata.annotation"), Some(given)),
    }
    match errors.into_list().first() {
        Some(error) => Err(error.to_string()),
        None => Ok(Some(given.to_tree())),
    }
}
