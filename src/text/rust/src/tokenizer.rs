//! The tokenizers crate: text to ids with byte offsets and back.

use crate::guard;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What any text may use, and more for each byte of it: a normalizer can make a text longer without
/// bound, a pattern can try without end.
const TIME: Duration = Duration::from_secs(20);
const TIME_A_BYTE: Duration = Duration::from_micros(50);
const MEMORY: usize = 64 << 20;
const MEMORY_A_BYTE: usize = 1 << 10;
/// In all: a row that takes more is none that a model could be trained on.
const MOST_MEMORY: usize = 4 << 30;
/// The same for the file that describes the tokenizer.
const LOAD_TIME: Duration = Duration::from_secs(60);
const LOAD_MEMORY: usize = 64 << 20;
const LOAD_MEMORY_A_BYTE: usize = 64;

/// Ids, and where each came from: start and end in bytes.
pub type Encoded = (Vec<u32>, Vec<(usize, usize)>);

pub struct Tokenizer {
    inner: Arc<tokenizers::Tokenizer>,
}

fn limits(bytes: usize) -> guard::Limits {
    let scale = u32::try_from(bytes).unwrap_or(u32::MAX);
    guard::Limits {
        memory: MOST_MEMORY.min(MEMORY + MEMORY_A_BYTE.saturating_mul(bytes)),
        time: TIME + TIME_A_BYTE.saturating_mul(scale),
    }
}

impl Tokenizer {
    pub fn from_json(bytes: &[u8]) -> Result<Tokenizer, String> {
        let limits = guard::Limits {
            memory: LOAD_MEMORY + LOAD_MEMORY_A_BYTE.saturating_mul(bytes.len()),
            time: LOAD_TIME,
        };
        let bytes = bytes.to_vec();
        guard::run(limits, move || {
            let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| e.to_string())?;
            // As transformers: a file's own truncation and padding act only when asked for.
            inner.with_truncation(None).map_err(|e| e.to_string())?;
            inner.with_padding(None);
            let inner = Arc::new(inner);
            Ok(Tokenizer { inner })
        })
    }

    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Encoded, String> {
        let inner = self.inner.clone();
        let text = text.to_owned();
        guard::run(limits(text.len()), move || {
            let encoding = inner
                .encode(text, add_special_tokens)
                .map_err(|e| e.to_string())?;
            Ok((encoding.get_ids().to_vec(), encoding.get_offsets().to_vec()))
        })
    }

    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String, String> {
        let inner = self.inner.clone();
        let ids = ids.to_vec();
        guard::run(limits(ids.len().saturating_mul(4)), move || {
            inner
                .decode(&ids, skip_special_tokens)
                .map_err(|e| e.to_string())
        })
    }

    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// With the added tokens.
    pub fn vocabulary_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// [{"id", "content", "special"}], by id.
    pub fn added_tokens(&self) -> String {
        let tokens: BTreeMap<_, _> = self.inner.get_added_tokens_decoder().into_iter().collect();
        let list = tokens.iter().map(
            |(id, token)| json!({"id": id, "content": token.content, "special": token.special}),
        );
        serde_json::Value::from_iter(list).to_string()
    }
}
