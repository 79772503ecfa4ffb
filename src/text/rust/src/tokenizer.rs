//! The tokenizers crate: text to ids with byte offsets and back.

use serde_json::json;
use std::collections::BTreeMap;

/// Ids, and where each came from: start and end in bytes.
pub type Encoded = (Vec<u32>, Vec<(usize, usize)>);

pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
}

impl Tokenizer {
    pub fn from_json(bytes: &[u8]) -> Result<Tokenizer, String> {
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| e.to_string())?;
        // As transformers: a file's own truncation and padding act only when asked for.
        inner.with_truncation(None).map_err(|e| e.to_string())?;
        inner.with_padding(None);
        Ok(Tokenizer { inner })
    }

    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Encoded, String> {
        let encoding = self
            .inner
            .encode(text, add_special_tokens)
            .map_err(|e| e.to_string())?;
        Ok((encoding.get_ids().to_vec(), encoding.get_offsets().to_vec()))
    }

    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String, String> {
        self.inner
            .decode(ids, skip_special_tokens)
            .map_err(|e| e.to_string())
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
