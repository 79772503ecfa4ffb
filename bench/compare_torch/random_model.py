"""Fills a folder that has a config.json with random weights and a tokenizer of a word a token.

Beside it goes a fresh LoRA adapter on all linear layers.
"""
import argparse
import json
import os

import torch
import transformers
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers

SPECIAL = ["<unk>", "<s>", "</s>"]


def write_tokenizer(folder, vocabulary):
    """"w7" is id 7, so that rows of text can name ids."""
    words = SPECIAL + [f"w{i}" for i in range(len(SPECIAL), vocabulary)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)},
                                           unk_token=SPECIAL[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as out:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": SPECIAL[0],
                   "bos_token": SPECIAL[1], "eos_token": SPECIAL[2],
                   "clean_up_tokenization_spaces": False}, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", required=True)
    parser.add_argument("--adapter", required=True)
    parser.add_argument("--rank", type=int, required=True)
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(0)
    config_path = os.path.join(options.base, "config.json")
    with open(config_path, encoding="utf-8") as text:
        shape = text.read()
    config = transformers.AutoConfig.from_pretrained(options.base)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(options.base)
    with open(config_path, "w", encoding="utf-8") as out:
        out.write(shape)
    write_tokenizer(options.base, config.vocab_size)
    lora = LoraConfig(r=options.rank, lora_alpha=2 * options.rank, target_modules="all-linear",
                      task_type="CAUSAL_LM")
    get_peft_model(model, lora).save_pretrained(options.adapter)


if __name__ == "__main__":
    main()
