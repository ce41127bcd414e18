//! Negotiation of the form of an answer (`Accept`) and of a body (`Content-Type`).

use crate::error::ApiError;
use crate::request_info::Query;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Method, Request};

/// A serialization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    #[default]
    Json,
    Yaml,
    Protobuf,
}

impl Format {
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    fn parse(media_type: &str) -> Option<Self> {
        match media_type {
            "application/json" => Some(Self::Json),
            "application/yaml" => Some(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            _ => None,
        }
    }
}

/// The representation of an object in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Representation {
    #[default]
    Object,
    /// `Table.v1.meta.k8s.io` (or `v1beta1`, which differs in name only).
    Table { beta: bool },
    /// `PartialObjectMetadata`, of one object.
    Metadata { beta: bool },
    /// `PartialObjectMetadataList`, of a list.
    MetadataList { beta: bool },
}

/// The negotiated form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ResponseFormat {
    pub format: Format,
    pub view: Representation,
    /// The client takes gzip.
    pub gzip: bool,
    pub pretty: bool,
}

/// Formats and representations that an endpoint can produce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupportedFormats {
    pub protobuf: bool,
    pub views: bool,
    /// The forms of watches, which upstream's router names for lists.
    pub streams: bool,
}

impl SupportedFormats {
    pub const ALL: Self = Self {
        protobuf: true,
        views: true,
        streams: true,
    };
    /// Custom resources have no protobuf form; their metadata have.
    pub const CUSTOM: Self = Self {
        protobuf: false,
        views: true,
        streams: false,
    };

    fn media_types(self) -> Vec<String> {
        let mut all = vec!["application/json", "application/yaml"];
        if self.protobuf {
            all.push("application/vnd.kubernetes.protobuf");
        }
        all.into_iter().map(str::to_owned).collect()
    }
}

/// Clauses beyond this many are ignored.
const MAX_CLAUSES: usize = 64;

/// One clause of an `Accept` header.
#[derive(Debug, Default)]
struct Clause<'h> {
    media_type: &'h str,
    parameters: Vec<(&'h str, &'h str)>,
    quality: f32,
}

/// Chooses the form of an answer, or refuses as upstream does.
pub fn accept(headers: &HeaderMap, offer: SupportedFormats) -> Result<ResponseFormat, ApiError> {
    let base = ResponseFormat {
        gzip: takes_gzip(headers),
        pretty: false,
        ..ResponseFormat::default()
    };
    let text = header_text(headers, &ACCEPT);
    if text.trim().is_empty() {
        return Ok(base);
    }
    let clauses = clauses(&text);
    // Upstream's router knows exact types and `*/*`; what it lets through is negotiated, and there `application/*` counts
    // too. Custom kinds are not routed by it.
    let routed =
        |clause: &Clause<'_>| clause.media_type == "*/*" || Format::parse(clause.media_type).is_some();
    if offer.protobuf && !clauses.iter().any(routed) {
        let mut all = offer.media_types();
        if offer.streams {
            all.push("application/json;stream=watch".into());
            all.push("application/vnd.kubernetes.protobuf;stream=watch".into());
        }
        return Err(ApiError::NoRepresentation(all));
    }
    let found = clauses.iter().find_map(|clause| clause_form(clause, offer));
    match found {
        Some((format, view)) => Ok(ResponseFormat { format, view, ..base }),
        None => Err(ApiError::NotAcceptable(offer.media_types())),
    }
}

/// Reports whether upstream's router has a handler for these forms; where it has none it answers itself, and nothing counts the
/// request.
pub fn has_handler(method: &Method, headers: &HeaderMap) -> bool {
    let refused = accept(headers, SupportedFormats::ALL)
        .is_err_and(|error| matches!(error, ApiError::NoRepresentation(_)));
    let unread = *method == Method::PATCH && patch(headers, false).is_err();
    !refused && !unread
}

/// The form of an answer that says what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorForm {
    pub format: Format,
    pub pretty: bool,
}

/// The form of an answer that says what went wrong, in the accepted format; JSON where it was to be a view of something, and
/// for a client that accepts no served format.
pub fn of_errors<B>(request: &Request<B>) -> ErrorForm {
    let (uri, headers) = (request.uri(), request.headers());
    let says = uri.query().is_some_and(|query| query.contains("pretty"));
    ErrorForm {
        format: error_format(headers),
        pretty: match says {
            true => wants_pretty(&Query::of(uri), headers),
            false => is_of_human(headers),
        },
    }
}

/// Humans' clients get indented JSON. The texts for "yes" are Go's; an empty one says nothing.
pub(crate) fn wants_pretty(query: &Query, headers: &HeaderMap) -> bool {
    match query.get("pretty") {
        None | Some("") => is_of_human(headers),
        Some(text) => matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True"),
    }
}

fn is_of_human(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    let known = ["curl", "Wget", "Mozilla/5.0"];
    agent.is_some_and(|agent| known.iter().any(|known| agent.starts_with(known)))
}

fn error_format(headers: &HeaderMap) -> Format {
    let text = header_text(headers, &ACCEPT);
    let known =
        |clause: &Clause<'_>| Format::parse(clause.media_type).filter(|_| clause.parameters.is_empty());
    let any =
        |clause: &Clause<'_>| Format::parse(clause.media_type).is_some() || clause.media_type.contains('*');
    clauses(&text)
        .iter()
        .find(|clause| any(clause))
        .and_then(known)
        .unwrap_or_default()
}

/// Reports whether the client accepts gzip.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|coding| coding.split(';').next().is_some_and(|name| name.trim() == "gzip"))
}

/// The document that the client prefers, among documents with media types of their own; the first if it accepts any.
pub(crate) fn choose<T: Copy>(headers: &HeaderMap, offers: &[(&str, T)]) -> Option<T> {
    let text = header_text(headers, &ACCEPT);
    if text.trim().is_empty() {
        return offers.first().map(|(_, own)| *own);
    }
    clauses(&text).iter().find_map(|clause| {
        let fits =
            |own: &str| matches!(clause.media_type, "*/*" | "application/*") || own == clause.media_type;
        offers.iter().find(|(own, _)| fits(own)).map(|(_, own)| *own)
    })
}

/// All values of a header, joined as one list.
fn header_text(headers: &HeaderMap, name: &http::HeaderName) -> String {
    let values: Vec<&str> = headers
        .get_all(name)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .collect();
    values.join(",")
}

/// The clauses, best quality first; equal ones keep their order.
fn clauses(text: &str) -> Vec<Clause<'_>> {
    let mut all: Vec<Clause<'_>> = text.split(',').take(MAX_CLAUSES).map(clause).collect();
    all.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    all
}

fn clause(text: &str) -> Clause<'_> {
    let mut parts = text.split(';').map(str::trim);
    let mut found = Clause {
        media_type: parts.next().unwrap_or_default(),
        quality: 1.0,
        ..Clause::default()
    };
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if name == "q" {
            found.quality = value.parse().unwrap_or(1.0);
        } else {
            found.parameters.push((name, value.trim_matches('"')));
        }
    }
    found
}

fn clause_form(clause: &Clause<'_>, offer: SupportedFormats) -> Option<(Format, Representation)> {
    let format = match clause.media_type {
        "*/*" | "application/*" => Format::Json,
        other => Format::parse(other)?,
    };
    let protobuf = format == Format::Protobuf;
    let parameter = |name: &str| {
        clause
            .parameters
            .iter()
            .find(|(own, _)| *own == name)
            .map(|(_, value)| *value)
    };
    let Some(kind) = parameter("as") else {
        return (!protobuf || offer.protobuf).then_some((format, Representation::Object));
    };
    let beta = parameter("v") == Some("v1beta1");
    let known =
        offer.views && parameter("g") == Some("meta.k8s.io") && (beta || parameter("v") == Some("v1"));
    let view = match kind {
        // A Table has no protobuf form; the next clause counts.
        "Table" if known && !protobuf => Representation::Table { beta },
        "PartialObjectMetadata" if known => Representation::Metadata { beta },
        "PartialObjectMetadataList" if known => Representation::MetadataList { beta },
        _ => return None,
    };
    Some((format, view))
}

/// The format of a body; no content type is JSON.
pub fn content(headers: &HeaderMap, offer: SupportedFormats) -> Result<Format, ApiError> {
    let text = headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let media_type = text.split(';').next().unwrap_or_default().trim();
    if media_type.is_empty() {
        return Ok(Format::Json);
    }
    match Format::parse(media_type) {
        Some(Format::Protobuf) if !offer.protobuf => {}
        Some(format) => return Ok(format),
        None => {}
    }
    Err(ApiError::UnsupportedMediaType(offer.media_types()))
}

/// The type of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply(Format),
}

/// The type of a patch; custom resources take no strategic merge patch.
pub fn patch(headers: &HeaderMap, custom: bool) -> Result<PatchType, ApiError> {
    let text = headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    match text.split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => return Ok(PatchType::Json),
        "application/merge-patch+json" => return Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" if !custom => return Ok(PatchType::Strategic),
        "application/apply-patch+yaml" => return Ok(PatchType::Apply(Format::Yaml)),
        _ => {}
    }
    if custom {
        let supported = [
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ];
        return Err(ApiError::UnsupportedMediaType(
            supported.map(str::to_owned).to_vec(),
        ));
    }
    Err(ApiError::NoConsumer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accepted: &str, expected: Option<(Format, Representation)>) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accepted.parse().unwrap());
        let found = accept(&headers, SupportedFormats::ALL)
            .ok()
            .map(|form| (form.format, form.view));
        assert_eq!(found, expected, "{accepted}");
    }

    #[test]
    fn errors_come_in_the_accepted_format() {
        for (accepted, expected) in [
            ("", Format::Json),
            ("*/*", Format::Json),
            ("application/yaml", Format::Yaml),
            (
                "application/vnd.kubernetes.protobuf, application/json",
                Format::Protobuf,
            ),
            ("application/json;q=0.5,application/yaml", Format::Yaml),
            ("image/png", Format::Json),
            ("image/png,application/yaml", Format::Yaml),
            ("application/yaml;as=Table;v=v1;g=meta.k8s.io", Format::Json),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accepted.parse().unwrap());
            assert_eq!(error_format(&headers), expected, "{accepted}");
        }
    }

    #[test]
    fn forms() {
        check("application/json", Some((Format::Json, Representation::Object)));
        check("*/*", Some((Format::Json, Representation::Object)));
        check(
            "text/html,application/xhtml+xml,*/*;q=0.8",
            Some((Format::Json, Representation::Object)),
        );
        check(
            "application/vnd.kubernetes.protobuf,application/json",
            Some((Format::Protobuf, Representation::Object)),
        );
        check(
            "application/json;q=0.1,application/yaml",
            Some((Format::Yaml, Representation::Object)),
        );
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        check(
            kubectl,
            Some((Format::Json, Representation::Table { beta: false })),
        );
        check(
            "application/json;as=Cake;v=v1;g=meta.k8s.io,application/yaml",
            Some((Format::Yaml, Representation::Object)),
        );
        check("image/png", None);
        // Not routed by itself, and as good as any other behind what is.
        check("application/*", None);
        check(
            "application/*;q=0.5, */*;q=0.1",
            Some((Format::Json, Representation::Object)),
        );
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, "application/*".parse().unwrap());
        assert!(accept(&headers, SupportedFormats::CUSTOM).is_ok());
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let heads = Some((Format::Protobuf, Representation::MetadataList { beta: false }));
        check(metadata, heads);
        check(
            "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1",
            None,
        );
        check(
            "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/yaml",
            Some((Format::Yaml, Representation::Object)),
        );
    }

    #[test]
    fn pretty_is_read_as_go_reads_a_bool() {
        let check = |query: &str, agent: &str| {
            let request = Request::get(format!("/?{query}")).header(USER_AGENT, agent);
            of_errors(&request.body(()).unwrap()).pretty
        };
        for yes in ["true", "True", "TRUE", "t", "T", "1"] {
            assert!(check(&format!("pretty={yes}"), "kubectl/v1.37"), "{yes}");
        }
        for no in ["false", "F", "FALSE", "0", "x", "tRUE", "yes"] {
            assert!(!check(&format!("pretty={no}"), "curl/8"), "{no}");
        }
        for silent in ["", "pretty", "pretty=", "other=pretty"] {
            assert!(check(silent, "curl/8"), "{silent}");
            assert!(!check(silent, "kubectl/v1.37"), "{silent}");
        }
    }

    #[test]
    fn custom_metadata_has_a_protobuf_form() {
        let of = |accepted: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accepted.parse().unwrap());
            let form = accept(&headers, SupportedFormats::CUSTOM).ok()?;
            Some((form.format, form.view))
        };
        assert_eq!(of("application/vnd.kubernetes.protobuf"), None);
        let whole = Some((Format::Json, Representation::Object));
        assert_eq!(of("application/vnd.kubernetes.protobuf,application/json"), whole);
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(
            of(metadata),
            Some((Format::Protobuf, Representation::Metadata { beta: false }))
        );
    }
}
