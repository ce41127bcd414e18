//! Operations of a built-in resource and its subresources: the actions of upstream's installer.

use super::names::{article, title};
use super::{
    ANY, About, Body, Code, Content, OBJECTS, OBJECTS_AND_EVENTS, OK, OK_ACCEPTED, OK_CREATED,
    OK_CREATED_ACCEPTED, Options, Parameter, Route, base,
};
use crate::table::KindInfo;
use machinery_schema::TypeId;
use std::collections::HashMap;

/// A built-in kind to be documented.
#[derive(Debug, Clone, Copy)]
pub struct BuiltInKind<'a> {
    pub kind: &'a KindInfo,
    /// Deletions answer with the object and not with a `Status`.
    pub returns_deleted: bool,
}

/// Body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Object,
    Patch,
    DeleteOptions,
}

/// Answer of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gives {
    Object,
    List,
    Status,
    /// The object where the kind returns what it deleted, else a `Status`.
    Deleted,
    Event,
}

/// One row of an installer's actions.
#[derive(Debug)]
pub(super) struct Action {
    /// `x-kubernetes-action`.
    pub(super) name: &'static str,
    /// Verb in discovery that says that a resource has the action.
    pub(super) verb: &'static str,
    pub(super) method: &'static str,
    /// First word of the operation's id.
    pub(super) operation: &'static str,
    pub(super) options: &'static [&'static str],
    pub(super) takes: Takes,
    pub(super) gives: Gives,
    pub(super) codes: &'static [Code],
}

const LIST_OPTIONS: &str = "meta.v1.ListOptions";
pub(super) const DELETE_OPTIONS: &str = "meta.v1.DeleteOptions";
/// Members of `ListOptions` that a deletion of collections does not take.
const WATCH_ONLY: [&str; 2] = ["watch", "allowWatchBookmarks"];

/// Actions on a collection.
const COLLECTION: [Action; 4] = [
    Action {
        name: "list",
        verb: "list",
        method: "get",
        operation: "list",
        options: &[LIST_OPTIONS],
        takes: Takes::Nothing,
        gives: Gives::List,
        codes: OK,
    },
    CREATE,
    Action {
        name: "deletecollection",
        verb: "deletecollection",
        method: "delete",
        operation: "deletecollection",
        options: &[DELETE_OPTIONS, LIST_OPTIONS],
        takes: Takes::DeleteOptions,
        gives: Gives::Status,
        codes: OK,
    },
    WATCH_LIST,
];
const CREATE: Action = Action {
    name: "post",
    verb: "create",
    method: "post",
    operation: "create",
    options: &["meta.v1.CreateOptions"],
    takes: Takes::Object,
    gives: Gives::Object,
    codes: OK_CREATED_ACCEPTED,
};
/// The watch at a path of its own.
const WATCH_LIST: Action = Action {
    name: "watchlist",
    verb: "watch",
    method: "get",
    operation: "watch",
    options: &[LIST_OPTIONS],
    takes: Takes::Nothing,
    gives: Gives::Event,
    codes: OK,
};

/// Actions on one object.
const ITEM: [Action; 5] = [
    Action {
        name: "get",
        verb: "get",
        method: "get",
        operation: "read",
        options: &[],
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
        codes: OK_CREATED,
    },
    Action {
        name: "delete",
        verb: "delete",
        method: "delete",
        operation: "delete",
        options: &[DELETE_OPTIONS],
        takes: Takes::DeleteOptions,
        gives: Gives::Deleted,
        codes: OK_ACCEPTED,
    },
    Action {
        name: "watch",
        verb: "watch",
        method: "get",
        operation: "watch",
        options: &[LIST_OPTIONS],
        takes: Takes::Nothing,
        gives: Gives::Event,
        codes: OK,
    },
];

/// Methods that connect, with the verb in discovery that says so; those without one go with the subresource `proxy`, which
/// connects with every method and has paths below it.
const CONNECT: [(&str, &str); 7] = [
    ("get", "get"),
    ("post", "create"),
    ("put", "update"),
    ("patch", "patch"),
    ("delete", "delete"),
    ("head", ""),
    ("options", ""),
];
const PROXY: &str = "proxy";

/// Media types of patches, by which kubectl chooses one.
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// The subresource that is read as text, with the type of its options.
const LOG: (&str, &str) = ("log", "core.v1.PodLogOptions");
const LOG_FORMS: [&str; 4] = [
    "text/plain",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// A resource or one of its subresources.
#[derive(Clone)]
struct Target<'a> {
    options: Options<'a>,
    parent: &'a KindInfo,
    subresource: Option<&'a str>,
    /// Group, version and kind of its objects.
    gvk: [&'a str; 3],
    verbs: &'a [String],
    model: Content,
    list_model: Content,
    returns_deleted: bool,
}

/// Names of models by their types.
pub(in crate::openapi) type Models = HashMap<TypeId, String>;

/// The operations of a kind.
pub(in crate::openapi) fn routes<'a>(
    own: &BuiltInKind<'a>,
    options: Options<'a>,
    models: &Models,
) -> Vec<Route<'a>> {
    let kind = own.kind;
    let model = |id: Option<TypeId>| {
        let name = id.and_then(|id| models.get(&id));
        name.map_or(Content::Text, |name| Content::Model(name.clone()))
    };
    let main = Target {
        options,
        parent: kind,
        subresource: None,
        gvk: [&kind.gvk.group, &kind.gvk.version, &kind.gvk.kind],
        verbs: &kind.verbs,
        model: model(Some(kind.ty)),
        list_model: model(kind.list_ty),
        returns_deleted: own.returns_deleted,
    };
    let mut out = main.resource();
    for subresource in &kind.subresources {
        let gvk = &subresource.gvk;
        let target = Target {
            subresource: Some(&subresource.name),
            gvk: [&gvk.group, &gvk.version, &gvk.kind],
            verbs: &subresource.verbs,
            model: model(subresource.ty),
            ..main.clone()
        };
        out.extend(target.subresource());
    }
    out
}

/// Coverage of an action's path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// All objects, or those of one namespace.
    Collection,
    AllNamespaces,
    Item,
    /// All that follows an object's path.
    Below,
}

impl<'a> Target<'a> {
    fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == verb)
    }

    fn has_action(&self, action: &Action) -> bool {
        // A watch of a collection is for kinds that are listed.
        self.has(action.verb) && (action.name != WATCH_LIST.name || self.has("list"))
    }

    fn resource(&self) -> Vec<Route<'a>> {
        let mut out = Vec::new();
        for action in COLLECTION.iter().filter(|action| self.has_action(action)) {
            out.push(self.route(action, Reach::Collection));
            if self.parent.namespaced && matches!(action.name, "list" | "watchlist") {
                out.push(self.route(action, Reach::AllNamespaces));
            }
        }
        let item = ITEM.iter().filter(|action| self.has_action(action));
        out.extend(item.map(|action| self.route(action, Reach::Item)));
        out
    }

    fn subresource(&self) -> Vec<Route<'a>> {
        // Only those that connect have a kind of options.
        if self.gvk[2].ends_with("Options") {
            return self.connects();
        }
        if self.subresource == Some(LOG.0) {
            return vec![self.log()];
        }
        let actions = ITEM.iter().chain([&CREATE]);
        let own = actions.filter(|action| self.has_action(action));
        own.map(|action| self.route(action, Reach::Item)).collect()
    }

    fn route(&self, action: &Action, reach: Reach) -> Route<'a> {
        let mut parameters = self.path_parameters(reach);
        parameters.push(Parameter::pretty());
        for options in action.options {
            let all = self.options.of(options);
            let excluded =
                |own: &Parameter<'_>| action.name == "deletecollection" && WATCH_ONLY.contains(&own.name);
            parameters.extend(all.filter(|own| !excluded(own)));
        }
        let is_watch = matches!(action.name, "watch" | "watchlist");
        let path = self.path(reach, if is_watch { "/watch" } else { "" });
        let is_stream = is_watch || action.name == "list";
        Route {
            method: action.method,
            path,
            operation: self.operation(
                action.operation,
                if action.name == "watchlist" { "List" } else { "" },
                reach,
            ),
            description: describe(action, self.subresource, &self.parent.gvk.kind, self.has("watch")).into(),
            about: Some(self.about(action.name)),
            consumes: match action.takes {
                Takes::Patch => PATCHES,
                _ => ANY,
            },
            produces: if is_stream { OBJECTS_AND_EVENTS } else { OBJECTS }.into(),
            parameters,
            body: body(action.takes, &self.model),
            answer: self.answer(action.gives),
            codes: action.codes,
        }
    }

    fn answer(&self, gives: Gives) -> Content {
        match gives {
            Gives::Object => self.model.clone(),
            Gives::List => self.list_model.clone(),
            Gives::Deleted if self.returns_deleted => self.model.clone(),
            Gives::Status | Gives::Deleted => Content::meta("Status"),
            Gives::Event => Content::meta("WatchEvent"),
        }
    }

    fn log(&self) -> Route<'a> {
        let read = &ITEM[0];
        let mut own = self.route(read, Reach::Item);
        own.parameters.extend(self.options.of(LOG.1));
        own.produces = LOG_FORMS.as_slice().into();
        own.answer = Content::Text;
        own
    }

    /// Operations that hand the connection over.
    fn connects(&self) -> Vec<Route<'a>> {
        let name = self.subresource.unwrap_or_default();
        let reaches: &[Reach] = if name == PROXY {
            &[Reach::Item, Reach::Below]
        } else {
            &[Reach::Item]
        };
        let methods = CONNECT
            .iter()
            .filter(|(_, verb)| self.has(verb) || (verb.is_empty() && name == PROXY));
        let all = methods.flat_map(|(method, _)| reaches.iter().map(move |reach| (*method, *reach)));
        all.map(|(method, reach)| self.connect(method, reach)).collect()
    }

    fn connect(&self, method: &'static str, reach: Reach) -> Route<'a> {
        let mut parameters = self.path_parameters(reach);
        parameters.extend(self.options.of(&format!("core.v1.{}", self.gvk[2])));
        let (kind, name) = (&self.parent.gvk.kind, self.subresource.unwrap_or_default());
        let upper = method.to_uppercase();
        Route {
            method,
            path: self.path(reach, ""),
            operation: self.operation(&format!("connect{}", title(method)), "", reach),
            description: format!("connect {upper} requests to {name} of {kind}").into(),
            about: Some(self.about("connect")),
            consumes: ANY,
            produces: ANY.into(),
            parameters,
            body: None,
            answer: Content::Text,
            codes: OK,
        }
    }

    fn about(&self, action: &'static str) -> About<'a> {
        About {
            action,
            kind: self.gvk,
        }
    }

    /// `readNamespacedPodEphemeralcontainers`
    fn operation(&self, verb: &str, list: &str, reach: Reach) -> String {
        let namespaced = match reach {
            Reach::AllNamespaces => "",
            _ if self.parent.namespaced => "Namespaced",
            _ => "",
        };
        let subresource = self.subresource.map(title).unwrap_or_default();
        let end = match reach {
            Reach::AllNamespaces => "ForAllNamespaces",
            Reach::Below => "WithPath",
            Reach::Collection | Reach::Item => "",
        };
        format!(
            "{verb}{namespaced}{}{subresource}{list}{end}",
            self.parent.gvk.kind
        )
    }

    fn path(&self, reach: Reach, below_version: &str) -> String {
        let (gvk, plural) = (&self.parent.gvk, &self.parent.plural);
        let mut path = base(&gvk.group, &gvk.version) + below_version;
        if self.parent.namespaced && reach != Reach::AllNamespaces {
            path.push_str("/namespaces/{namespace}");
        }
        path = format!("{path}/{plural}");
        if matches!(reach, Reach::Item | Reach::Below) {
            path.push_str("/{name}");
        }
        if let Some(subresource) = self.subresource {
            path = format!("{path}/{subresource}");
        }
        if reach == Reach::Below {
            path.push_str("/{path}");
        }
        path
    }

    fn path_parameters(&self, reach: Reach) -> Vec<Parameter<'a>> {
        let mut out = Vec::new();
        if self.parent.namespaced && reach != Reach::AllNamespaces {
            out.push(Parameter::path("namespace", NAMESPACE));
        }
        if matches!(reach, Reach::Item | Reach::Below) {
            out.push(Parameter::path("name", format!("name of the {}", self.gvk[2])));
        }
        if reach == Reach::Below {
            out.push(Parameter::path("path", "path to the resource"));
        }
        out
    }
}

pub(super) const NAMESPACE: &str = "object name and auth scope, such as for teams and projects";

/// The body of a request; that of a deletion may be left out.
pub(super) fn body(takes: Takes, object: &Content) -> Option<Body> {
    let content = match takes {
        Takes::Nothing => return None,
        Takes::Object => object.clone(),
        Takes::Patch => Content::meta("Patch"),
        Takes::DeleteOptions => Content::meta("DeleteOptions"),
    };
    Some(Body {
        content,
        required: takes != Takes::DeleteOptions,
    })
}

/// One sentence on an action, in upstream's words.
pub(super) fn describe(action: &Action, subresource: Option<&str>, kind: &str, watched: bool) -> String {
    let of = subresource.map_or_else(String::new, |name| format!("{name} of "));
    let article = article(kind);
    match action.name {
        "list" if watched => format!("list or watch objects of kind {kind}"),
        "list" => format!("list objects of kind {kind}"),
        "deletecollection" => format!("delete collection of {kind}"),
        "watchlist" => format!(
            "watch individual changes to a list of {kind}. deprecated: use the 'watch' parameter with a list operation instead."
        ),
        "watch" => format!(
            "watch changes to an object of kind {kind}. deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter."
        ),
        "get" => format!("read {of}the specified {kind}"),
        "put" => format!("replace {of}the specified {kind}"),
        "patch" => format!("partially update {of}the specified {kind}"),
        name => {
            let verb = if name == "post" { "create" } else { name };
            match subresource {
                Some(subresource) => format!("{verb} {subresource} of{article}{kind}"),
                None => format!("{verb}{article}{kind}"),
            }
        }
    }
}
