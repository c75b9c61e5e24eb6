# /// script
# requires-python = "==3.11.*"
# dependencies = [
#   "torch==2.5.1", "numpy==1.26.4", "transformers==4.48.3", "tokenizers==0.21.4", "blake3==1.0.11",
#   "cloudpickle==3.1.3", "gguf==0.10.0", "msgspec==0.22.0", "nvidia-ml-py==13.615.71", "openai==3.57.0",
#   "aiohttp==3.14.5", "pillow==13.0.0", "protobuf==7.36.2", "psutil==7.2.2", "py-cpuinfo==9.0.0",
#   "pydantic==2.14.4", "pyzmq==27.3.0", "requests==2.34.2", "sentencepiece==0.2.3", "setuptools==80.9.0",
#   "vllm==0.7.2",
# ]
# [[tool.uv.dependency-metadata]]
# name = "vllm"
# requires-dist = []
# ///
"""vLLM 0.7.2 itself, in eager mode, with 256 requests: an illegal memory access in its sampler.

What to look for: 200 requests are served (tokens_of_200_requests=800). With 256 the block table fills its memory, and
behind it nothing is mapped: the attention reads on, and the error comes out in vLLM's sampler (raised_in_sampler=1,
raised_in_attention=0). CUDA_LAUNCH_BLOCKING=1 moves it to flash_attn_with_kvcache.
"""

import ctypes
import json
import os
import pathlib
import random
import subprocess
import tempfile
import traceback

os.environ |= {"VLLM_FLASH_ATTN_VERSION": "2", "VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1"}
os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}

import torch
import triton

LENGTH, NEW = 1985, 4  # 1986 to 1988 tokens when the next one is decoded: 125 pages of 16, 5 of the last tile's 8
WIDTH = 125  # in eager mode the block table is as wide as the longest sequence needs
ALLOCATOR = r"""
// Memory for torch.cuda.memory.CUDAPluggableAllocator. What is as large as a block table ends where the mapped memory
// ends, in steps of 512 bytes, as PyTorch's own allocator gives memory out. All else is plain memory, kept for later.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
static struct { CUdeviceptr address; size_t size; int used; } block[1 << 16];
static int blocks;
static void must(int status, const char *call) { if (status) { fprintf(stderr, "%s: %d\n", call, status); abort(); } }
#define MUST(call) must(call, #call)
static int is_table(size_t size) { return size == TABLE_256 || size == TABLE_200; }

void *allocate(long size, int device, void *stream) {
  size_t granule, n = size ? (size + 511) / 512 * 512 : 512;  // the engine profiles with tensors of no elements
  if (is_table(size)) {
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    CUmemAccessDesc access = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    MUST(cuMemGetAllocationGranularity(&granule, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    size_t mapped = (n + granule - 1) / granule * granule;
    MUST(cuMemAddressReserve(&base, mapped + granule, 0, 0, 0));
    MUST(cuMemCreate(&handle, mapped, &kind, 0));
    MUST(cuMemMap(base, mapped, 0, handle, 0));
    MUST(cuMemSetAccess(base, mapped, &access, 1));
    return (void *)(base + mapped - n);  // it stays mapped until the process ends: 2 MiB a table
  }
  int best = -1;
  for (int i = 0; i < blocks; i++)
    if (!block[i].used && block[i].size >= n && block[i].size <= 2 * n + (1 << 20))
      if (best < 0 || block[i].size < block[best].size) best = i;
  if (best < 0) { MUST(cuMemAlloc(&block[best = blocks++].address, n)); block[best].size = n; }
  block[best].used = 1;
  return (void *)block[best].address;
}

void release(void *address, long size, int device, void *stream) {
  for (int i = 0; i < blocks; i++) if (block[i].address == (CUdeviceptr)address) block[i].used = 0;
}
"""
SHAPE = {"hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12, "num_key_value_heads": 2}
SHAPE |= {"vocab_size": 151936, "max_position_embeddings": 32768, "tie_word_embeddings": True, "rope_theta": 1e6}
CONFIG = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16", "hidden_act": "silu"}
CONFIG |= {"num_hidden_layers": 2, "bos_token_id": 151643, "eos_token_id": 151645} | SHAPE  # Qwen2.5-1.5B has 28

home = pathlib.Path(tempfile.mkdtemp())
(home / "config.json").write_text(json.dumps(CONFIG))
(home / "allocator.c").write_text(ALLOCATOR)
include = pathlib.Path(triton.__file__).parent / "backends/nvidia/include"
sizes = [f"-DTABLE_{rows}={rows * WIDTH * 4}" for rows in (256, 200)]
library = str(home / "allocator.so")
subprocess.run(["gcc", "-shared", "-fPIC", f"-I{include}", *sizes, home / "allocator.c", "-o", library], check=True)
ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "allocate", "release")
torch.cuda.memory.change_current_allocator(allocator)
# Such an allocator has no statistics, and vLLM asks for them; nothing of the answers counts, as the blocks are given.
torch.cuda.memory_stats = lambda *args: {}
torch.cuda.memory_reserved = torch.cuda.max_memory_allocated = lambda *args: 0
torch.cuda.reset_peak_memory_stats = torch.cuda.empty_cache = lambda *args: None

from vllm import LLM, SamplingParams  # noqa: E402

engine = LLM(
    model=str(home),
    load_format="dummy",  # random weights
    skip_tokenizer_init=True,
    enforce_eager=True,
    max_num_seqs=256,  # vLLM's default
    max_model_len=2176,
    max_num_batched_tokens=16384,
    num_gpu_blocks_override=256 * 128,
    swap_space=0,
)
print("engine_started=1", flush=True)
random.seed(0)
prompts = [{"prompt_token_ids": random.choices(range(1000, 150000), k=LENGTH)} for _ in range(256)]
how = SamplingParams(temperature=1.0, max_tokens=NEW, ignore_eos=True, detokenize=False)
for count in (200, 256):  # 200 rows of 500 bytes leave 352 bytes behind them, and 256 rows none
    try:
        outputs = engine.generate(prompts[:count], how, use_tqdm=False)
    except RuntimeError:
        text = traceback.format_exc()
        print(f"raised_in_sampler={int('vllm/model_executor/layers/sampler.py' in text)}")
        print(f"raised_in_attention={int('in flash_attn_with_kvcache' in text)}", flush=True)
        raise
    print(f"tokens_of_{count}_requests={sum(len(each.outputs[0].token_ids) for each in outputs)}", flush=True)
