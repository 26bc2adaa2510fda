/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Text of numbers, for people. What has no name is "Invalid Value".
 */
#ifndef URMA_TYPES_STR_H
#define URMA_TYPES_STR_H

#include "urma_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define URMA_DEVICE_FEAT_NUM 9
#define URMA_ATOMIC_FEAT_NUM 7

static inline const char *urma_mtu_to_string(urma_mtu_t value)
{
    switch ((int)value) {
    case URMA_MTU_256:
        return "MTU_256";
    case URMA_MTU_512:
        return "MTU_512";
    case URMA_MTU_1024:
        return "MTU_1024";
    case URMA_MTU_2048:
        return "MTU_2048";
    case URMA_MTU_4096:
        return "MTU_4096";
    case URMA_MTU_8192:
        return "MTU_8192";
    default:
        return "Invalid Value";
    }
}

static inline const char *urma_port_state_to_string(urma_port_state_t value)
{
    switch ((int)value) {
    case URMA_PORT_NOP:
        return "NOP";
    case URMA_PORT_DOWN:
        return "DOWN";
    case URMA_PORT_INIT:
        return "INIT";
    case URMA_PORT_ARMED:
        return "ARMED";
    case URMA_PORT_ACTIVE:
        return "ACTIVE";
    case URMA_PORT_ACTIVE_DEFER:
        return "ACTIVE_DEFER";
    default:
        return "Invalid Value";
    }
}

static inline const char *urma_speed_to_string(urma_speed_t value)
{
    switch ((int)value) {
    case URMA_SP_10M:
        return "SP_10M";
    case URMA_SP_100M:
        return "SP_100M";
    case URMA_SP_1G:
        return "SP_1G";
    case URMA_SP_2_5G:
        return "SP_2.5G";
    case URMA_SP_5G:
        return "SP_5G";
    case URMA_SP_10G:
        return "SP_10G";
    case URMA_SP_14G:
        return "SP_14G";
    case URMA_SP_25G:
        return "SP_25G";
    case URMA_SP_40G:
        return "SP_40G";
    case URMA_SP_50G:
        return "SP_50G";
    case URMA_SP_100G:
        return "SP_100G";
    case URMA_SP_200G:
        return "SP_200G";
    case URMA_SP_400G:
        return "SP_400G";
    case URMA_SP_800G:
        return "SP_800G";
    default:
        return "Invalid Value";
    }
}

static inline const char *urma_link_width_to_string(urma_link_width_t value)
{
    switch ((int)value) {
    case 0:
        return "unknow";
    case URMA_LINK_X1:
        return "LINK_X1";
    case URMA_LINK_X2:
        return "LINK_X2";
    case URMA_LINK_X4:
        return "LINK_X4";
    case URMA_LINK_X8:
        return "LINK_X8";
    case URMA_LINK_X16:
        return "LINK_X16";
    case URMA_LINK_X32:
        return "LINK_X32";
    default:
        return "Invalid Value";
    }
}

/* One kind alone has a name. */
static inline const char *urma_tp_type_en_to_string(union urma_tp_type_en value)
{
    switch (value.value & 7U) {
    case 1:
        return "RTP";
    case 2:
        return "CTP";
    case 4:
        return "UTP";
    default:
        return "Invalid Value";
    }
}

/* By the number of the bit. */
static inline const char *urma_device_feat_to_string(uint8_t value)
{
    switch (value) {
    case 0:
        return "OUT_OF_ORDER";
    case 1:
        return "JFC_PER_WR";
    case 2:
        return "STRIDE_OP";
    case 3:
        return "LOAD_STORE_OP";
    case 4:
        return "NON_PIN";
    case 5:
        return "PERSISTENCE_MEM";
    case 6:
        return "JFC_INLINE";
    case 7:
        return "SPRAY_ENABLE";
    case 8:
        return "SELECTIVE_RETRANS";
    default:
        return "Invalid Value";
    }
}

static inline const char *urma_atomic_feat_to_string(uint8_t value)
{
    switch (value) {
    case 0:
        return "compare_and_swap";
    case 1:
        return "swap";
    case 2:
        return "fetch_and_add";
    case 3:
        return "fetch_and_sub";
    case 4:
        return "fetch_and_and";
    case 5:
        return "fetch_and_or";
    case 6:
        return "fetch_and_xor";
    default:
        return "Invalid Value";
    }
}

static inline const char *urma_trans_mode_to_string(urma_transport_mode_t value)
{
    switch ((int)value) {
    case URMA_TM_RM:
        return "RM(Reliable message)";
    case URMA_TM_RC:
        return "RC(Reliable connection)";
    case URMA_TM_UM:
        return "UM(Unreliable message)";
    default:
        return "Invalid Value";
    }
}

static inline const char *urma_tp_type_to_string(urma_transport_type_t value)
{
    switch ((int)value) {
    case URMA_TRANSPORT_UB:
        return "UB";
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    case URMA_TRANSPORT_IB:
        return "IB";
    case URMA_TRANSPORT_IP:
        return "IP";
    case URMA_TRANSPORT_SOFTUB:
        return "SOFTUB";
    case URMA_TRANSPORT_HNS_UB:
        return "HNS_UB";
#endif
    default:
        return "Invalid Value";
    }
}

static inline const char *urma_congestion_ctrl_alg_to_string(uint8_t value)
{
    switch (value) {
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    case URMA_TP_CC_NONE:
        return "NONE";
    case URMA_TP_CC_DCQCN:
        return "DCQCN";
    case URMA_TP_CC_CAQM:
        return "CAQM";
    case URMA_TP_CC_LDCP:
        return "LDCP";
    case URMA_TP_CC_LDCP_L2_HEADER:
        return "LDCP_L2_HEADER";
    case URMA_TP_CC_LDCP_TP_HEADER:
        return "LDCP_TP_HEADER";
    case URMA_TP_CC_DIP:
        return "DIP";
    case URMA_TP_CC_ACC:
        return "ACC";
    case URMA_TP_CC_CUSTOM_1:
        return "CUSTOM_1";
    case URMA_TP_CC_CUSTOM_2:
        return "CUSTOM_2";
#else
    case URMA_TP_CC_NONE:
        return "NONE";
    case URMA_TP_CC_DCQCN:
        return "DCQCN";
    case URMA_TP_CC_DCQCN_AND_NETWORK_CC:
        return "DCQCN_AND_NETWORK_CC";
    case URMA_TP_CC_LDCP:
        return "LDCP";
    case URMA_TP_CC_LDCP_AND_CAQM:
        return "LDCP_AND_CAQM";
    case URMA_TP_CC_LDCP_AND_OPEN_CC:
        return "LDCP_AND_OPEN_CC";
    case URMA_TP_CC_HC3:
        return "HC3";
    case URMA_TP_CC_DIP:
        return "DIP";
    case URMA_TP_CC_ACC:
        return "ACC";
#endif
    default:
        return "Invalid Value";
    }
}

static inline const char *urma_jfc_state_to_string(uint8_t value)
{
    switch (value) {
    case URMA_JFC_STATE_INVALID:
        return "INVALID";
    case URMA_JFC_STATE_VALID:
        return "VALID";
    case URMA_JFC_STATE_ERROR:
        return "ERROR";
    default:
        return "Invalid Value";
    }
}

static inline const char *urma_jetty_state_to_string(uint8_t value)
{
    switch (value) {
    case URMA_JETTY_STATE_RESET:
        return "RESET";
    case URMA_JETTY_STATE_READY:
        return "READY";
    case URMA_JETTY_STATE_SUSPENDED:
        return "SUSPENDED";
    case URMA_JETTY_STATE_ERROR:
        return "ERROR";
    default:
        return "Invalid Value";
    }
}

static inline const char *urma_jfr_state_to_string(uint8_t value)
{
    switch (value) {
    case URMA_JFR_STATE_RESET:
        return "RESET";
    case URMA_JFR_STATE_READY:
        return "READY";
    case URMA_JFR_STATE_ERROR:
        return "ERROR";
    default:
        return "Invalid Value";
    }
}

#ifdef __cplusplus
}
#endif

#endif
