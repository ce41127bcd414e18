//! DefaultStorageClass and DefaultIngressClass: a new claim or ingress without a class gets the one that an annotation makes
//! the default. Of several the newest counts, and of those of one second the first by name.

use super::objects::annotation;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_meta::GroupResource;
use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_schema::Tree;
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The part in which the two plugins differ.
#[derive(Debug)]
struct Defaulted {
    plugin: &'static str,
    /// Group and resource of what gets a class.
    of: (&'static str, &'static str),
    classes: (&'static str, &'static str),
    /// Each of these makes a class the default.
    marks: &'static [&'static str],
    field: &'static str,
    /// The older form of the field.
    annotation: &'static str,
}

static STORAGE: Defaulted = Defaulted {
    plugin: "DefaultStorageClass",
    of: ("", "persistentvolumeclaims"),
    classes: ("storage.k8s.io", "storageclasses"),
    marks: &[
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ],
    field: "storageClassName",
    annotation: "volume.beta.kubernetes.io/storage-class",
};

static INGRESS: Defaulted = Defaulted {
    plugin: "DefaultIngressClass",
    of: ("networking.k8s.io", "ingresses"),
    classes: ("networking.k8s.io", "ingressclasses"),
    marks: &["ingressclass.kubernetes.io/is-default-class"],
    field: "ingressClassName",
    annotation: "kubernetes.io/ingress.class",
};

pub(super) struct DefaultClass {
    of: &'static Defaulted,
    reader: Arc<dyn ObjectReader>,
}

impl DefaultClass {
    pub(super) fn storage(reader: &Arc<dyn ObjectReader>) -> Self {
        Self::new(&STORAGE, reader)
    }

    pub(super) fn ingress(reader: &Arc<dyn ObjectReader>) -> Self {
        Self::new(&INGRESS, reader)
    }

    fn new(of: &'static Defaulted, reader: &Arc<dyn ObjectReader>) -> Self {
        let reader = Arc::clone(reader);
        Self { of, reader }
    }

    async fn default_class(&self) -> Result<Option<String>, AdmissionError> {
        let (group, resource) = self.of.classes;
        let classes = self.reader.list(&GroupResource::new(group, resource), "").await?;
        let defaults = classes.iter().filter(|class| self.is_default(class));
        // Times of the API sort as texts.
        let newest = defaults.min_by_key(|class| {
            let header = &class.header;
            (
                Reverse(header.creation_timestamp.clone()),
                header.key.name.clone(),
            )
        });
        Ok(newest.map(|class| class.header.key.name.to_string()))
    }

    fn is_default(&self, class: &ReadObject) -> bool {
        let class: Class = serde_json::from_slice(&class.json).unwrap_or_default();
        let marks = class.metadata.annotations;
        (self.of.marks.iter()).any(|mark| marks.get(*mark).is_some_and(|value| value == "true"))
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Class {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    annotations: BTreeMap<String, String>,
}

#[async_trait]
impl Plugin for DefaultClass {
    fn name(&self) -> &'static str {
        self.of.plugin
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        let (group, resource) = self.of.of;
        request.operation == Operation::Create && request.is(group, resource)
    }

    async fn mutate(
        &self,
        _: &Request<'_>,
        object: &mut Tree,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        // An empty name is a class too: none.
        let named = object.at(&["spec", self.of.field]);
        let has_class = named.is_some_and(|name| !name.is_null());
        if has_class || annotation(object, self.of.annotation).is_some() {
            return Ok(());
        }
        if let Some(class) = self.default_class().await? {
            object.set_str(&["spec", self.of.field], &class);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::tests::{Objects, block_on};
    use machinery_meta::UserInfo;

    fn class(mark: &str, created: &str) -> String {
        format!(r#"{{"metadata":{{"annotations":{{"{mark}":"true"}},"creationTimestamp":"{created}"}}}}"#)
    }

    /// The class of a new object, with these classes there.
    fn given(of: &'static Defaulted, classes: &[(&str, &str)], object: &str) -> Option<String> {
        let objects = classes.iter().fold(Objects::default(), |objects, (name, json)| {
            objects.with(of.classes.1, "", name, json)
        });
        let reader: Arc<dyn ObjectReader> = Arc::new(objects);
        let plugin = DefaultClass::new(of, &reader);
        let user = UserInfo::named("jane", ["dev"]);
        let request = Request {
            user: &user,
            operation: Operation::Create,
            group: of.of.0,
            kind: "",
            resource: of.of.1,
            subresource: "",
            namespace: "a",
            name: "x",
            dry_run: false,
            remarks: &crate::Unheard,
            host: None,
            reinvocation: None,
        };
        assert!(plugin.handles(&request));
        let mut object = Tree::from_json(object).unwrap();
        block_on(plugin.mutate(&request, &mut object, None)).unwrap();
        let named = object.at(&["spec", of.field])?;
        named.as_str().map(str::to_owned)
    }

    const OLD: &str = "2026-01-01T00:00:00Z";
    const NEW: &str = "2026-01-02T00:00:00Z";

    /// Cases of upstream's `setdefault/admission_test.go` and `defaultingressclass/admission_test.go`.
    #[test]
    fn default_class_is_given_where_none_is_named() {
        for of in [&STORAGE, &INGRESS] {
            let (old, new) = (class(of.marks[0], OLD), class(of.marks[0], NEW));
            let without = r#"{"metadata":{"name":"x"},"spec":{}}"#;
            let one = |object: &str| given(of, &[("c", &old), ("d", "{}")], object);
            assert_eq!(given(of, &[("d", "{}")], without), None);
            assert_eq!(one(without).as_deref(), Some("c"));
            let named = format!(r#"{{"spec":{{"{}":"foo"}}}}"#, of.field);
            assert_eq!(one(&named).as_deref(), Some("foo"));
            let none = format!(r#"{{"spec":{{"{}":""}}}}"#, of.field);
            assert_eq!(one(&none).as_deref(), Some(""));
            let annotated = format!(
                r#"{{"metadata":{{"annotations":{{"{}":"foo"}}}}}}"#,
                of.annotation
            );
            assert_eq!(one(&annotated), None);
            // The newest, then the first by name.
            let several = [("a", &*old), ("c", &*new), ("b", &*new)];
            assert_eq!(given(of, &several, without).as_deref(), Some("b"));
        }
        let beta = class(STORAGE.marks[1], OLD);
        assert_eq!(
            given(&STORAGE, &[("c", &beta)], r#"{"spec":{}}"#).as_deref(),
            Some("c")
        );
    }
}
