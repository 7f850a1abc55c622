"""Pure functions on tensors: what mixers are made of. Each is a plain definition with faster forms beside it."""

from longwave.ops.attention import Pattern, attention
from longwave.ops.block_attention import block_attention
from longwave.ops.conv1d import conv1d
from longwave.ops.delta_rule import delta_rule
from longwave.ops.dense_lti import dense_lti
from longwave.ops.dispatch import use
from longwave.ops.dplr import dplr, dplr_kernel
from longwave.ops.experts import experts
from longwave.ops.fftconv import fftconv, long_conv
from longwave.ops.gated_cells import gru, lstm
from longwave.ops.glu_linear import glu_linear
from longwave.ops.linear import linear
from longwave.ops.linear_recurrence import linear_recurrence
from longwave.ops.log_signature import log_signature
from longwave.ops.loss import cross_entropy
from longwave.ops.lsh_attention import lsh_attention
from longwave.ops.lti import discretize, discretize_diagonal, impulse, krylov, lti, vandermonde
from longwave.ops.min_gru import min_gru
from longwave.ops.norm import layer_norm, rms_norm
from longwave.ops.rotary import rotary
from longwave.ops.scan import linear_scan, scan
from longwave.ops.selective_scan import selective_scan
from longwave.ops.short_conv import short_conv
from longwave.ops.ssm import selective_ssm, ssm
from longwave.ops.wkv import wkv

__all__ = [
    "Pattern", "attention", "block_attention", "conv1d", "cross_entropy", "delta_rule", "dense_lti", "discretize",
    "discretize_diagonal", "dplr", "dplr_kernel", "experts", "fftconv", "glu_linear", "gru", "impulse", "krylov",
    "layer_norm", "linear", "linear_recurrence", "linear_scan", "log_signature", "long_conv", "lsh_attention", "lstm",
    "lti", "min_gru", "rms_norm", "rotary", "scan", "selective_scan", "selective_ssm", "short_conv", "ssm", "use",
    "vandermonde", "wkv",
]  # fmt: skip
