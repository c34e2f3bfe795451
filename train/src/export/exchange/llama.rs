//! A language model as Hugging Face's `transformers` knows it: our decoder is a Llama, whose parts are called otherwise there.
//!
//! Heads are turned in the same way: the first half and the second of a head are the coordinates of its planes in both, so that no row of
//! a matrix changes its place.

use serde_json::{Value, json};

use super::super::ModelError;
use super::super::read::Held;
use super::NumberFormat;
use crate::network::transformer::Size;

/// The table of embeddings, by which such a file is known.
pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";
/// The weights of the output, where it has some.
pub(super) const OUTPUT: &str = "lm_head.weight";
/// What is added to the mean square in a normalization: as Burn's `RmsNorm` has it.
const EPSILON: f64 = 1e-5;
/// The longest of the waves that positions are.
const THETA: f64 = 10_000.0;

/// What a leaf of our decoder is called there; `None` of all others.
pub(super) fn tensor(path: &str) -> Option<String> {
    match path {
        "embedding.weight" => return Some(EMBEDDING.to_owned()),
        "norm.gamma" => return Some("model.norm.weight".to_owned()),
        "output.weight" => return Some(OUTPUT.to_owned()),
        _ => {}
    }
    let (layer, leaf) = path.strip_prefix("layers.")?.split_once('.')?;
    let theirs = match leaf {
        "attention_norm.gamma" => "input_layernorm",
        "attention.queries.weight" => "self_attn.q_proj",
        "attention.keys.weight" => "self_attn.k_proj",
        "attention.values.weight" => "self_attn.v_proj",
        "attention.output.weight" => "self_attn.o_proj",
        "feed_norm.gamma" => "post_attention_layernorm",
        "feed.gates.weight" => "mlp.gate_proj",
        "feed.inputs.weight" => "mlp.up_proj",
        "feed.output.weight" => "mlp.down_proj",
        _ => return None,
    };
    Some(format!("model.layers.{layer}.{theirs}.weight"))
}

/// What `config.json` says of it.
///
/// # Errors
/// If it is no language model.
pub(super) fn config(held: &Held, numbers: NumberFormat) -> Result<Value, ModelError> {
    let description = &held.description;
    let size = description.decoder();
    let gates = description.parameters.iter().find(|entry| entry.path.ends_with("feed.gates.weight"));
    let (Some(Size { layers, width, heads, key_heads, tied_output, .. }), Some(gates)) = (size, gates) else {
        return Err(ModelError::NoSuchExport {
            model: description.model.to_string(),
            how: "for Hugging Face's `transformers`",
            reason: "it opens them as Llamas, which only language models (gpt) are; take --layout torch".to_owned(),
        });
    };
    Ok(json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": description.classes,
        "hidden_size": width,
        "intermediate_size": gates.shape[1],
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "head_dim": width / heads.max(1),
        "hidden_act": "silu",
        "max_position_embeddings": description.features(),
        "rms_norm_eps": EPSILON,
        "rope_theta": THETA,
        "attention_bias": false,
        "mlp_bias": false,
        "tie_word_embeddings": tied_output,
        // No token begins or ends a text, as two of them would by default.
        "bos_token_id": null,
        "eos_token_id": description.tokenizer().map(|tokenizer| tokenizer.end),
        "torch_dtype": torch(numbers),
    }))
}

fn torch(numbers: NumberFormat) -> &'static str {
    match numbers {
        NumberFormat::F32 => "float32",
        NumberFormat::Bf16 => "bfloat16",
        NumberFormat::F16 => "float16",
    }
}
