//! Operations of a custom kind, as upstream's builder for definitions documents them: in fewer forms than those of built-in
//! kinds, without the deprecated paths of watches, and about the kind itself in its subresources too.

use super::names::title;
use super::operations::{Action, DELETE_OPTIONS, Gives, NAMESPACE, Takes, body, describe};
use super::{
    About, Content, OK, OK_ACCEPTED, OK_CREATED, OK_CREATED_ACCEPTED, Options, Parameter, Route, base,
};

const FORMS: &[&str] = &["application/json", "application/yaml"];
/// Schemas of custom kinds have no merge keys.
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

const COLLECTION: [Action; 3] = [
    Action {
        name: "list",
        verb: "list",
        method: "get",
        operation: "list",
        options: &["meta.v1.ListOptions"],
        takes: Takes::Nothing,
        gives: Gives::List,
        codes: OK,
    },
    Action {
        name: "post",
        verb: "create",
        method: "post",
        operation: "create",
        options: &["meta.v1.CreateOptions"],
        takes: Takes::Object,
        gives: Gives::Object,
        codes: OK_CREATED_ACCEPTED,
    },
    Action {
        name: "deletecollection",
        verb: "deletecollection",
        method: "delete",
        operation: "deletecollection",
        options: &["meta.v1.ListOptions"],
        takes: Takes::Nothing,
        gives: Gives::Status,
        codes: OK,
    },
];
const ITEM: [Action; 3] = [
    Action {
        name: "get",
        verb: "get",
        method: "get",
        operation: "read",
        options: &["meta.v1.GetOptions"],
        takes: Takes::Nothing,
        gives: Gives::Object,
        codes: OK,
    },
    Action {
        name: "put",
        verb: "update",
        method: "put",
        operation: "replace",
        options: &["meta.v1.UpdateOptions"],
        takes: Takes::Object,
        gives: Gives::Object,
        codes: OK_CREATED,
    },
    Action {
        name: "patch",
        verb: "patch",
        method: "patch",
        operation: "patch",
        options: &["meta.v1.PatchOptions"],
        takes: Takes::Patch,
        gives: Gives::Object,
        codes: OK,
    },
];
/// The delete of single objects.
const DELETE: Action = Action {
    name: "delete",
    verb: "delete",
    method: "delete",
    operation: "delete",
    options: &[DELETE_OPTIONS],
    takes: Takes::DeleteOptions,
    gives: Gives::Status,
    codes: OK_ACCEPTED,
};

/// A custom resource, with the models of its objects.
pub(in crate::openapi) struct CustomResource<'a> {
    pub(in crate::openapi) options: Options<'a>,
    /// Group, version and kind.
    pub(in crate::openapi) gvk: [&'a str; 3],
    pub(in crate::openapi) plural: &'a str,
    pub(in crate::openapi) namespaced: bool,
    pub(in crate::openapi) model: String,
    pub(in crate::openapi) list_model: String,
    /// Subresources with the models of their bodies.
    pub(in crate::openapi) subresources: Vec<(&'static str, String)>,
}

impl<'a> CustomResource<'a> {
    pub(in crate::openapi) fn routes(&self) -> Vec<Route<'a>> {
        let own = Content::Model(self.model.clone());
        let mut out = Vec::new();
        for action in &COLLECTION {
            out.push(self.route(action, self.path(""), None, &own));
        }
        if self.namespaced {
            let [group, version, kind] = self.gvk;
            let everywhere = format!("{}/{}", base(group, version), self.plural);
            let mut list = self.route(&COLLECTION[0], everywhere, None, &own);
            list.operation = format!("list{kind}ForAllNamespaces");
            out.push(list);
        }
        for action in ITEM.iter().chain([&DELETE]) {
            out.push(self.route(action, self.path("/{name}"), None, &own));
        }
        for (name, model) in &self.subresources {
            let path = self.path(&format!("/{{name}}/{name}"));
            let model = Content::Model(model.clone());
            let routes = ITEM
                .iter()
                .map(|action| self.route(action, path.clone(), Some(*name), &model));
            out.extend(routes);
        }
        out
    }

    fn path(&self, rest: &str) -> String {
        let [group, version, _] = self.gvk;
        let base = base(group, version);
        let scope = if self.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        format!("{base}{scope}/{}{rest}", self.plural)
    }

    fn route(&self, action: &Action, path: String, subresource: Option<&str>, object: &Content) -> Route<'a> {
        let kind = self.gvk[2];
        let mut parameters = vec![Parameter::pretty()];
        if path.contains("{namespace}") {
            parameters.push(Parameter::path("namespace", NAMESPACE));
        }
        if path.contains("{name}") {
            parameters.push(Parameter::path("name", format!("name of the {kind}")));
        }
        parameters.extend(action.options.iter().flat_map(|name| self.options.of(name)));
        let namespaced = if self.namespaced { "Namespaced" } else { "" };
        let title = subresource.map(title).unwrap_or_default();
        Route {
            method: action.method,
            path,
            operation: format!("{}{namespaced}{kind}{title}", action.operation),
            description: describe(action, subresource, kind, false).into(),
            about: Some(About {
                action: action.name,
                kind: self.gvk,
            }),
            consumes: match action.takes {
                Takes::Patch => PATCHES,
                _ => FORMS,
            },
            produces: FORMS.into(),
            parameters,
            body: body(action.takes, object),
            answer: match action.gives {
                Gives::Object => object.clone(),
                Gives::List => Content::Model(self.list_model.clone()),
                Gives::Status | Gives::Deleted | Gives::Event => Content::meta("Status"),
            },
            codes: action.codes,
        }
    }
}
