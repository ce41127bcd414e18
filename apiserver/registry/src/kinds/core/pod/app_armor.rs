//! AppArmor profiles by annotation, the form of before v1.30: those of a new pod become the field that nodes enforce
//! (upstream's `applyAppArmorVersionSkew`).

use crate::engine::context::RequestContext;
use crate::shared::validation::{Errors, Path};
use machinery_schema::{Mut, Ref, Tree};

/// First part of the annotations' keys; the container's name follows.
pub(super) const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
pub(super) const SUCCESSOR: &str = r#"deprecated since v1.30; use the "appArmorProfile" field instead"#;
/// Upstream's `PATH_MAX - 1`.
const MAX_PROFILE_BYTES: usize = 4095;
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

/// A profile in either form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Profile<'a> {
    kind: &'a str,
    /// Name of a profile that is loaded on the node.
    local: Option<&'a str>,
}

impl<'a> Profile<'a> {
    fn of_annotation(text: &'a str) -> Option<Self> {
        match text.strip_prefix("localhost/") {
            Some("") => None,
            Some(name) => Some(Self {
                kind: "Localhost",
                local: Some(name),
            }),
            None if text == "unconfined" => Some(Self::plain("Unconfined")),
            None if text == "runtime/default" => Some(Self::plain("RuntimeDefault")),
            None => None,
        }
    }

    fn plain(kind: &'a str) -> Self {
        Self { kind, local: None }
    }

    /// Returns the profile in the security context of a pod or a container.
    fn of_context(context: Ref<'a>) -> Option<Self> {
        let field = context.get("appArmorProfile").filter(|field| !field.is_null())?;
        Some(Self {
            kind: field.str("type"),
            local: field.get("localhostProfile").and_then(Ref::as_str),
        })
    }

    fn validate(self, errors: &mut Errors, path: &Path<'_>) {
        let at = path.child("localhostProfile");
        match (self.kind, self.local) {
            ("Localhost", file) => local_profile(errors, &at, file.unwrap_or_default()),
            ("", _) => errors.required(
                &path.child("type"),
                "type is required when appArmorProfile is set",
            ),
            (other, _) if !TYPES.contains(&other) => {
                errors.not_supported(&path.child("type"), other, &TYPES);
            }
            (_, Some(file)) => errors.invalid(&at, file, "can only be set when AppArmor type is Localhost"),
            (_, None) => {}
        }
    }

    fn is_valid(self) -> bool {
        let mut errors = Errors::new();
        self.validate(&mut errors, &Path::ROOT);
        errors.is_empty()
    }
}

fn local_profile(errors: &mut Errors, path: &Path<'_>, file: &str) {
    if file.trim() != file {
        errors.invalid(path, file, "must not be padded with whitespace");
    } else if file.is_empty() {
        errors.required(path, "must be set when AppArmor type is Localhost");
    }
    if file.len() > MAX_PROFILE_BYTES {
        errors.too_long(path, MAX_PROFILE_BYTES);
    }
}

/// Validates the field in the security context, of a pod or a container, that stands at this path.
pub(super) fn validate(errors: &mut Errors, path: &Path<'_>, context: Ref<'_>) {
    if let Some(profile) = Profile::of_context(context) {
        profile.validate(errors, &path.child("appArmorProfile"));
    }
}

/// Annotations of a pod or a pod template that name profiles, and the profile of the pod itself.
pub(super) struct Annotated<'a> {
    general: Option<Profile<'a>>,
    /// `None` where no container has one: most pods cost no look at their containers.
    annotations: Option<Ref<'a>>,
}

impl<'a> Annotated<'a> {
    pub(super) fn of(pod: Ref<'a>) -> Self {
        let context = pod.at(&["spec", "securityContext"]);
        let annotations = pod.at(&["metadata", "annotations"]);
        Self {
            general: context.and_then(Profile::of_context),
            annotations: annotations.filter(|all| all.entries().any(|(key, _)| key.starts_with(PREFIX))),
        }
    }

    /// Returns the annotation of a container without a field of its own.
    fn text(&self, container: Ref<'a>) -> Option<&'a str> {
        let annotations = self.annotations?;
        let own = container.get("securityContext").and_then(Profile::of_context);
        if own.is_some() {
            return None;
        }
        annotations.get(&key(container))?.as_str()
    }

    /// Reports whether a template's container is annotated with another profile than the pod has.
    pub(super) fn differs(&self, container: Ref<'a>) -> bool {
        self.text(container)
            .is_some_and(|text| self.general.is_none() || Profile::of_annotation(text) != self.general)
    }
}

/// Writes profiles by annotation into the fields of a new pod's containers, with a warning for each.
///
/// An annotation that says the same as the pod's field is left alone; one that names no profile only warns, and validation
/// says whether the pod is refused for it.
pub(super) fn set_fields(ctx: &RequestContext, pod: &mut Tree) {
    if is_windows(pod.root()) || Annotated::of(pod.root()).annotations.is_none() {
        return;
    }
    let before = pod.clone();
    let (annotated, spec) = (Annotated::of(before.root()), before.get("spec"));
    let metadata = Path::of("metadata");
    let annotations = metadata.child("annotations");
    for list in LISTS {
        for (index, container) in spec.into_iter().flat_map(|spec| spec.list(list)).enumerate() {
            let Some(text) = annotated.text(container) else {
                continue;
            };
            let profile = Profile::of_annotation(text).filter(|profile| profile.is_valid());
            if profile.is_some() && profile == annotated.general {
                continue;
            }
            let key = key(container);
            let annotation = annotations.key(&key);
            ctx.warnings.add(format!("{}: {SUCCESSOR}", annotation.to_path()));
            if let Some(profile) = profile {
                pod.with(&["spec", list], |mut all| {
                    all.item(index).map(|it| write(it, profile))
                });
            }
        }
    }
}

fn write(mut container: Mut<'_>, profile: Profile<'_>) {
    let mut context = container.entry("securityContext");
    let mut field = context.entry("appArmorProfile");
    field.set("type", profile.kind);
    if let Some(name) = profile.local {
        field.set("localhostProfile", name);
    }
}

/// Returns the key of a container's annotation.
pub(super) fn key(container: Ref<'_>) -> String {
    format!("{PREFIX}{}", container.str("name"))
}

/// Pods of Windows have no AppArmor: upstream neither moves nor compares their annotations.
pub(super) fn is_windows(pod: Ref<'_>) -> bool {
    pod.str_at(&["spec", "os", "name"]) == "windows"
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_meta::UserInfo;
    use machinery_runtime::Simulation;

    /// A pod's annotations, its own security context and that of its one container `c`; the context that is stored, and
    /// the number of warnings.
    #[track_caller]
    fn check(annotations: &str, general: &str, own: &str, expected: &str, warned: usize) {
        let text = format!(
            r#"{{"metadata":{{"annotations":{{{annotations}}}}},"spec":{{"securityContext":{general},
                "containers":[{{"name":"c","securityContext":{own}}}]}}}}"#
        );
        let mut pod = Tree::from_json(&text).unwrap();
        let ctx = RequestContext::internal(
            UserInfo::named("anna", [UserInfo::AUTHENTICATED]),
            Simulation::new(1).runtime(),
        );
        set_fields(&ctx, &mut pod);
        let stored = pod.get("spec").unwrap().list("containers").next().unwrap();
        let context = stored.get("securityContext").map(Ref::to_json);
        assert_eq!(context.as_deref(), Some(expected), "{text}");
        let warnings = ctx.warnings.take();
        let shown = r#"metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead"#;
        assert_eq!(warnings, vec![shown; warned], "{text}");
    }

    fn of_c(profile: &str) -> String {
        format!(r#""{PREFIX}c":"{profile}""#)
    }

    const STRICT: &str = r#"{"appArmorProfile":{"localhostProfile":"strict","type":"Localhost"}}"#;
    const UNCONFINED: &str = r#"{"appArmorProfile":{"type":"Unconfined"}}"#;
    const RUNTIME: &str = r#"{"appArmorProfile":{"type":"RuntimeDefault"}}"#;

    #[test]
    fn app_armor_annotations_of_a_new_pod_become_the_field() {
        check("", "{}", "{}", "{}", 0);
        check(&of_c("localhost/strict"), "{}", "{}", STRICT, 1);
        check(&of_c("unconfined"), "{}", "{}", UNCONFINED, 1);
        check(&of_c("runtime/default"), "{}", "{}", RUNTIME, 1);
        check(&of_c("localhost/strict"), RUNTIME, "{}", STRICT, 1);
        // The field is what counts, and an annotation of the same is not needed.
        check(&of_c("localhost/strict"), "{}", UNCONFINED, UNCONFINED, 0);
        check(&of_c("localhost/strict"), STRICT, "{}", "{}", 0);
    }

    #[test]
    fn app_armor_annotations_that_name_no_profile_only_warn() {
        for text in ["", "localhost/", "localhost/ padded", "docker/default"] {
            check(&of_c(text), "{}", "{}", "{}", 1);
        }
        check(&of_c(&format!("localhost/{:a>4096}", "")), "{}", "{}", "{}", 1);
        // Another container's.
        check(&format!(r#""{PREFIX}d":"unconfined""#), "{}", "{}", "{}", 0);
    }
}
