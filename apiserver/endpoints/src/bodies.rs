//! Reading an object from a request: size, format, strictness, kind, defaults.

use crate::body::{Body, ReadBodyError};
use crate::error::ApiError;
use crate::negotiation::{self, Format, SupportedFormats};
use apiserver_registry::context::LARGE_BODY_BYTES;
use apiserver_registry::options::FieldValidation;
use apiserver_registry::{RegistryError, RequestContext, ResourceRow, metadata};
use bytes::Bytes;
use http::HeaderMap;
use machinery_meta::{FieldError, FieldPath, GroupKind, GroupVersion, GroupVersionKind};
use machinery_schema::{
    DecodeError, Decoded, Schema, Strictness, Tree, TypeId, apply_defaults, decode_json, decode_protobuf,
    decode_yaml, yaml,
};
use std::sync::Arc;

/// Upstream's limit for a request's body: for what a filter reads before, and for what handlers take of it.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;
/// The limit for reviews and requests for tokens, which any user may send: they are short, and read and answered as a whole.
pub(crate) const MAX_QUESTION_BYTES: usize = 256 * 1024;

/// The type that a body is expected to have.
#[derive(Debug, Clone)]
pub(crate) struct Expected<'a> {
    pub(crate) gvk: GroupVersionKind,
    pub(crate) schema: &'a Arc<Schema>,
    pub(crate) ty: TypeId,
    /// Bodies of custom kinds say what they are; upstream knows no other way to read them.
    pub(crate) custom: bool,
    /// Defaults of a subresource's kind that are not in the schema.
    pub(crate) defaults: fn(&mut Tree),
}

impl<'a> Expected<'a> {
    pub(crate) fn of(row: &'a ResourceRow) -> Self {
        Self {
            gvk: row.gvk.clone(),
            schema: &row.schema,
            ty: row.ty,
            custom: row.custom,
            defaults: |_| {},
        }
    }
}

/// Reads the whole body.
pub(crate) async fn read(body: Body) -> Result<Bytes, RegistryError> {
    read_within(body, MAX_BODY_BYTES).await
}

/// Reads the whole body up to a limit of its own.
pub(crate) async fn read_within(body: Body, limit: usize) -> Result<Bytes, RegistryError> {
    body.read(limit).await.map_err(|error| match error {
        ReadBodyError::TooLarge(limit) => RegistryError::TooLarge(limit),
        ReadBodyError::NotAdmitted => RegistryError::TooManyRequests {
            message: error.to_string(),
            seconds: 1,
            causes: Vec::new(),
        },
        ReadBodyError::Broken(cause) => RegistryError::BadRequest(cause),
    })
}

/// Reports whether a body is heavy: a large one, and YAML whose length does not bound the work that it makes.
pub(crate) fn is_heavy(format: Format, bytes: &[u8]) -> bool {
    bytes.len() >= LARGE_BODY_BYTES || (format == Format::Yaml && !yaml::is_short(bytes))
}

/// Decodes a body by its content type, applies defaults and records it for the audit log.
pub(crate) async fn decode(
    ctx: &RequestContext,
    headers: &HeaderMap,
    bytes: Bytes,
    expected: &Expected<'_>,
    offer: SupportedFormats,
    validation: FieldValidation,
) -> Result<Tree, ApiError> {
    let format = negotiation::content(headers, offer)?;
    if is_heavy(format, &bytes) {
        ctx.heavy().await?;
    }
    let mut tree = decode_as(ctx, format, &bytes, expected, validation)?;
    apply_defaults(&mut tree);
    (expected.defaults)(&mut tree);
    ctx.record(&tree);
    Ok(tree)
}

pub(crate) fn decode_as(
    ctx: &RequestContext,
    format: Format,
    bytes: &[u8],
    expected: &Expected<'_>,
    validation: FieldValidation,
) -> Result<Tree, RegistryError> {
    let strictness = match validation {
        FieldValidation::Ignore => Strictness::Ignore,
        _ => Strictness::Report,
    };
    let (schema, ty) = (expected.schema, expected.ty);
    let decoded = match format {
        Format::Json => decode_json(schema, ty, bytes, strictness),
        Format::Yaml => decode_yaml(schema, ty, bytes, strictness),
        Format::Protobuf => decode_protobuf(schema, ty, bytes).map(|tree| Decoded {
            tree,
            strict_errors: Vec::new(),
        }),
    };
    let decoded = decoded.map_err(|error| undecodable(expected, format, bytes, &error))?;
    if expected.custom {
        check_custom_kind(&decoded.tree, expected, bytes)?;
    } else {
        check_kind(&decoded.tree, expected)?;
    }
    let mut tree = settle_strictness(ctx, decoded, expected, validation)?;
    tree.set_str(&["kind"], &expected.gvk.kind);
    tree.set_str(&["apiVersion"], &expected.gvk.api_version());
    Ok(tree)
}

/// Decodes an options kind or a `Status`, taking whatever group version it names.
pub(crate) fn decode_options(
    format: Format,
    bytes: &[u8],
    schema: &Arc<Schema>,
    ty: TypeId,
) -> Result<Tree, RegistryError> {
    let decoded = match format {
        Format::Json => decode_json(schema, ty, bytes, Strictness::Ignore),
        Format::Yaml => decode_yaml(schema, ty, bytes, Strictness::Ignore),
        Format::Protobuf => decode_protobuf(schema, ty, bytes).map(|tree| Decoded {
            tree,
            strict_errors: Vec::new(),
        }),
    };
    decoded
        .map(|decoded| decoded.tree)
        .map_err(|error| RegistryError::BadRequest(error.to_string()))
}

/// Unknown and duplicate fields: refused, warned of or ignored.
fn settle_strictness(
    ctx: &RequestContext,
    decoded: Decoded,
    expected: &Expected<'_>,
    validation: FieldValidation,
) -> Result<Tree, RegistryError> {
    match validation {
        FieldValidation::Strict if !decoded.strict_errors.is_empty() => {
            let gvk = &expected.gvk;
            Err(RegistryError::BadRequest(format!(
                "{} in version {:?} cannot be handled as a {}: strict decoding error: {}",
                gvk.kind,
                gvk.version,
                gvk.kind,
                decoded.strict_errors.join(", ")
            )))
        }
        FieldValidation::Warn => {
            for warning in &decoded.strict_errors {
                ctx.warnings.add(warning.as_str());
            }
            Ok(decoded.tree)
        }
        _ => Ok(decoded.tree),
    }
}

/// Upstream's error for a body that cannot be decoded: by its kind if that could be read.
fn undecodable(expected: &Expected<'_>, format: Format, bytes: &[u8], error: &DecodeError) -> RegistryError {
    if *error == DecodeError::TooManyValues {
        return RegistryError::TooLargePatch(error.to_string());
    }
    let gvk = &expected.gvk;
    if let Some(what) = (format == Format::Json).then(|| not_an_object(bytes)).flatten() {
        return RegistryError::BadRequest(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type {GO_TYPE_META} ({})",
            gvk.kind,
            summary(bytes)
        ));
    }
    RegistryError::BadRequest(match error {
        DecodeError::Syntax(problem) => format!(
            "the object provided is unrecognized (must be of type {}): {}{problem} ({})",
            gvk.kind,
            // Only JSON is read for its kind first.
            if format == Format::Json {
                "couldn't get version/kind; json parse error: "
            } else {
                ""
            },
            summary(bytes)
        ),
        _ => format!(
            "{} in version {:?} cannot be handled as a {}: {error}",
            gvk.kind, gvk.version, gvk.kind
        ),
    })
}

/// The Go type with which upstream reads a body's kind, as Go prints it.
const GO_TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// The type of a JSON document that is no object, in the words of Go's decoder.
fn not_an_object(bytes: &[u8]) -> Option<&'static str> {
    // Only documents that are JSON at all.
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).ok()?;
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace())? {
        b'[' => Some("array"),
        b'"' => Some("string"),
        b't' | b'f' => Some("bool"),
        b'-' | b'0'..=b'9' => Some("number"),
        _ => None,
    }
}

/// The beginning of a body, as text when it looks like JSON.
fn summary(bytes: &[u8]) -> String {
    const SHOWN: usize = 30;
    let (head, more) = if bytes.len() > SHOWN {
        (&bytes[..SHOWN], " ...")
    } else {
        (bytes, "")
    };
    match bytes.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => head.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + more,
    }
}

/// An object is the one that the address names; an absent namespace is fine.
pub(crate) fn check_identity(
    row: &ResourceRow,
    object: &Tree,
    name: &str,
    namespace: &str,
) -> Result<(), RegistryError> {
    let within = metadata::namespace(object);
    if row.namespaced && !within.is_empty() {
        metadata::same_namespace(within, namespace)?;
    }
    check_name(object, name)
}

/// An object has the name of the address.
pub(crate) fn check_name(object: &Tree, name: &str) -> Result<(), RegistryError> {
    let own = metadata::name(object);
    if own == name {
        return Ok(());
    }
    Err(RegistryError::BadRequest(if own.is_empty() {
        format!("the name of the object ({name} based on URL) was undeterminable: name must be provided")
    } else {
        format!("the name of the object ({own}) does not match the name on the URL ({name})")
    }))
}

/// Refuses a body whose `kind` or `apiVersion` is not the one that the address serves; absent ones are accepted.
fn check_kind(tree: &Tree, expected: &Expected<'_>) -> Result<(), RegistryError> {
    let (api_version, kind) = (tree.str_at(&["apiVersion"]), tree.str_at(&["kind"]));
    let wanted = &expected.gvk;
    let same_version =
        api_version.is_empty() || api_version == wanted.api_version() || is_former(wanted, api_version);
    if same_version && (kind.is_empty() || kind == wanted.kind) {
        return Ok(());
    }
    let version = api_version.parse::<GroupVersion>().unwrap_or_default().version;
    let found_kind = if kind.is_empty() { &wanted.kind } else { kind };
    Err(RegistryError::BadRequest(
        match other_kind(wanted, api_version, kind) {
            Some(problem) => format!(
                "{found_kind} in version {version:?} cannot be handled as a {}: {problem}",
                wanted.kind
            ),
            None => format!(
                "the API version in the data ({api_version}) does not match the expected API version ({})",
                wanted.api_version()
            ),
        },
    ))
}

/// Reports whether a version is one that evictions had before, which old clients send.
fn is_former(wanted: &GroupVersionKind, api_version: &str) -> bool {
    (&*wanted.group, &*wanted.kind) == ("policy", "Eviction") && api_version == "policy/v1beta1"
}

/// The problem of an object that is not of the wanted kind in any version; an absent kind is the wanted one.
pub(crate) fn other_kind(wanted: &GroupVersionKind, api_version: &str, kind: &str) -> Option<String> {
    let parsed: GroupVersion = api_version.parse().unwrap_or_default();
    let found_kind = if kind.is_empty() { &wanted.kind } else { kind };
    if machinery_api::schema_for(&parsed.group, &parsed.version, found_kind).is_none() {
        return Some(format!(
            "no kind {found_kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
        ));
    }
    if *found_kind == wanted.kind {
        return None;
    }
    let internal = match wanted.group.split('.').next() {
        Some("") | None => "core",
        Some(first) => first,
    };
    Some(format!(
        "converting ({}.{found_kind}) to ({internal}.{}): unknown conversion",
        parsed.version, wanted.kind
    ))
}

/// A custom object says what it is; another kind of the same group is looked at, and refused as what it says it is.
fn check_custom_kind(tree: &Tree, expected: &Expected<'_>, bytes: &[u8]) -> Result<(), RegistryError> {
    let (api_version, kind) = (tree.str_at(&["apiVersion"]), tree.str_at(&["kind"]));
    let wanted = &expected.gvk;
    if kind.is_empty() {
        return Err(RegistryError::BadRequest(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{}' ({})",
            wanted.kind,
            String::from_utf8_lossy(bytes),
            summary(bytes)
        )));
    }
    if api_version != wanted.api_version() {
        return Err(RegistryError::BadRequest(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            wanted.api_version()
        )));
    }
    if kind == wanted.kind {
        return Ok(());
    }
    Err(other_custom_kind(wanted, tree))
}

/// The refusal of an object of another custom kind than the wanted one.
pub(crate) fn other_custom_kind(wanted: &GroupVersionKind, tree: &Tree) -> RegistryError {
    let (api_version, kind) = (tree.str_at(&["apiVersion"]), tree.str_at(&["kind"]));
    let found: GroupVersion = api_version.parse().unwrap_or_default();
    let mut errors = Vec::new();
    if kind != wanted.kind {
        let detail = format!("must be {}", wanted.kind);
        errors.push(FieldError::invalid(&FieldPath::new("kind"), kind, detail));
    }
    if api_version != wanted.api_version() {
        let detail = format!("must be {}", wanted.api_version());
        errors.push(FieldError::invalid(
            &FieldPath::new("apiVersion"),
            api_version,
            detail,
        ));
    }
    RegistryError::Invalid {
        kind: GroupKind {
            group: found.group,
            kind: kind.to_owned(),
        },
        name: metadata::name(tree).to_owned(),
        errors,
    }
}
