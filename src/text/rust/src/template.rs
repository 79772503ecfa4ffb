//! Chat templates rendered as transformers renders them.

use crate::{guard, python};
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use time::format_description::parse_strftime_owned;
use time::OffsetDateTime;

const NAME: &str = "chat_template";
/// Chains such as `not not ... true` nest as deep as the text is long. Real templates are below
/// 32 KiB.
const MAX_TEMPLATE: usize = 128 << 10;
const TIME: Duration = Duration::from_secs(20);
/// Instructions and memory that any conversation may use, and more for each byte of it.
const FUEL: u64 = 1_000_000;
const FUEL_A_BYTE: u64 = 100;
const MEMORY: usize = 32 << 20;
const MEMORY_A_BYTE: usize = 64;
/// Starts the text of an error that the template itself raised.
const RAISED: char = '\u{1}';

pub struct Template {
    environment: Arc<Environment<'static>>,
}

impl Template {
    pub fn new(source: &str) -> Result<Template, String> {
        if source.len() > MAX_TEMPLATE {
            return Err(format!(
                "it is {} bytes long; at most 128 KiB is read",
                source.len()
            ));
        }
        let source = without_generation_tags(source);
        let limits = limits(source.len());
        guard::run(limits, move || {
            let mut environment = environment();
            environment
                .add_template_owned(NAME, source)
                .map_err(|error| describe(&error))?;
            Ok(Template {
                environment: Arc::new(environment),
            })
        })
    }

    /// `context` is a JSON object of the template's variables; `local_seconds` the local time in
    /// seconds since 1970 as a clock on the wall shows it.
    pub fn render(&self, context: &str, local_seconds: i64) -> Result<String, String> {
        let environment = self.environment.clone();
        let context = context.to_owned();
        guard::run(limits(context.len()), move || {
            let fuel = FUEL + FUEL_A_BYTE.saturating_mul(context.len() as u64);
            let mut variables: BTreeMap<String, Value> =
                serde_json::from_str(&context).map_err(|e| format!("its variables: {e}"))?;
            drop(context);
            variables.insert("strftime_now".to_owned(), strftime_now(local_seconds));
            let mut environment = (*environment).clone();
            environment.set_fuel(Some(fuel));
            let template = environment
                .get_template(NAME)
                .map_err(|error| describe(&error))?;
            template
                .render(Value::from(variables))
                .map_err(|error| describe(&error))
        })
    }
}

fn limits(input: usize) -> guard::Limits {
    guard::Limits {
        memory: MEMORY + MEMORY_A_BYTE.saturating_mul(input),
        time: TIME,
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_debug(true);
    environment.set_recursion_limit(200);
    environment.set_unknown_method_callback(python::call_method);
    environment.set_formatter(|out, _, value| match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::String => Ok(out.write_str(value.as_str().unwrap_or_default())?),
        _ => Ok(out.write_str(&python::to_str(value)?)?),
    });
    environment.add_filter("tojson", python::tojson);
    environment.add_filter("string", |value: &Value| python::to_str(value));
    environment.add_filter("trim", |value: &Value, set: Option<&str>| {
        python::to_str(value).map(|text| python::strip(&text, set, true, true).to_owned())
    });
    environment.add_filter("items", |value: &Value| match value.kind() {
        ValueKind::Undefined => Ok(Value::from(Vec::<Value>::new())),
        _ => minijinja::filters::items(value),
    });
    for name in ["e", "escape"] {
        environment.add_filter(name, |value: &Value| {
            python::to_str(value).map(|text| python::escape(&text))
        });
    }
    // Jinja's undefined value has a length and can be iterated.
    environment.add_test("sequence", |value: &Value| {
        let kind = value.kind();
        kind == ValueKind::Undefined
            || matches!(kind, ValueKind::Seq | ValueKind::Map | ValueKind::String)
    });
    environment.add_test("iterable", |value: &Value| {
        let kind = value.kind();
        matches!(kind, ValueKind::Undefined | ValueKind::Iterable)
            || matches!(kind, ValueKind::Seq | ValueKind::Map | ValueKind::String)
    });
    environment.add_test("number", |value: &Value| {
        matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
    });
    environment.add_function(
        "raise_exception",
        |message: &Value| -> Result<Value, Error> {
            let text = python::to_str(message)?;
            Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("{RAISED}{text}"),
            ))
        },
    );
    environment
}

fn strftime_now(local_seconds: i64) -> Value {
    Value::from_function(
        move |format: &str, kwargs: Kwargs| -> Result<String, Error> {
            kwargs.assert_all_used()?;
            let failure = |text: String| Error::new(ErrorKind::InvalidOperation, text);
            let now = OffsetDateTime::from_unix_timestamp(local_seconds)
                .map_err(|error| failure(format!("strftime_now: {error}")))?;
            parse_strftime_owned(format)
                .map_err(|error| error.to_string())
                .and_then(|items| now.format(&items).map_err(|error| error.to_string()))
                .map_err(|error| failure(format!("strftime_now({format:?}): {error}")))
        },
    )
}

/// transformers adds a `generation` block that only marks its text; `if true` renders the same.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else {
            break;
        };
        let end = start + length + 2;
        let tag = &rest[start + 2..end - 2];
        let word = tag.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        out.push_str(&rest[..start]);
        match word {
            "generation" => out.push_str(&rest[start..end].replacen(word, "if true", 1)),
            "endgeneration" => out.push_str(&rest[start..end].replacen(word, "endif", 1)),
            _ => {
                out.push_str("{%");
                rest = &rest[start + 2..];
                continue;
            }
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

fn describe(error: &Error) -> String {
    let mut text = String::new();
    if let Some(line) = error.line() {
        text.push_str(&format!("line {line}"));
        let excerpt = error
            .template_source()
            .zip(error.range())
            .and_then(|(s, r)| s.get(r));
        if let Some(excerpt) = excerpt.map(str::trim).filter(|excerpt| !excerpt.is_empty()) {
            let short: String = excerpt.chars().take(60).collect();
            let dots = if short.len() < excerpt.len() {
                "..."
            } else {
                ""
            };
            text.push_str(&format!(" ({}{dots})", short.replace('\n', "\\n")));
        }
        text.push_str(": ");
    }
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => text.push_str("it runs too long (an endless loop?)"),
        (_, Some(detail)) if detail.starts_with(RAISED) => {
            text.push_str(&detail[RAISED.len_utf8()..]);
        }
        (kind, Some(detail)) => text.push_str(&format!("{kind}: {detail}")),
        (kind, None) => text.push_str(&kind.to_string()),
    }
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source.and_then(std::error::Error::source) {
        source = Some(inner);
    }
    if let Some(innermost) = source {
        text.push_str(&format!(" ({innermost})"));
    }
    text
}
